// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
)

func execCommand() *cobra.Command {
	var patience, limit time.Duration
	var env []string
	var stdin bool
	c := &cobra.Command{
		Use:   "exec GUEST [flags] -- COMMAND [ARG]...",
		Short: "Run a command in a guest that \"boot\" keeps running",
		Long: fmt.Sprintf(`Runs a command in a running guest and passes its output and exit status on.
One argument is a script for sh -e -u, more are a program and its arguments.
Up to %d such commands run in a guest at a time. Interrupting one kills its
command in the guest.`, guest.AgentPorts-1),
		Example: `  ernic-lab exec g1 -- 'modprobe ionic_rdma; ibv_devinfo'
  ernic-lab exec g1 --env ` + guest.PatchedProvider + ` -- ibv_uc_pingpong
  ernic-lab exec g2 --stdin -- sh -c 'cat >/tmp/data' <data`,
		Args: cobra.MinimumNArgs(2),
		RunE: asRoot(func(c *cobra.Command, args []string) error {
			cmd := guest.Cmd{Argv: args[1:]}
			if len(args) == 2 {
				cmd = guest.Shell(args[1])
			}
			cmd.Env = env
			cmd.Stdout, cmd.Stderr = c.OutOrStdout(), c.ErrOrStderr()
			if stdin {
				cmd.Stdin = c.InOrStdin()
			}
			return execIn(c.Context(), args[0], cmd, patience, limit)
		}),
	}
	c.Flags().DurationVar(&patience, "boot-timeout", 2*time.Minute, "how long to wait for the guest to answer")
	c.Flags().DurationVar(&limit, "timeout", 0, "kill the command after this time (0: never)")
	c.Flags().StringArrayVarP(&env, "env", "e", nil, "NAME=value for the command's environment; may be repeated")
	c.Flags().BoolVarP(&stdin, "stdin", "i", false, "pass standard input to the command")
	return c
}

func execIn(ctx context.Context, name string, cmd guest.Cmd, patience, limit time.Duration) error {
	dial, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	client, done, err := freeLine(dial, name)
	if err != nil {
		return err
	}
	defer done()
	if limit > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
		defer cancel()
	}
	_, err = client.Run(ctx, cmd)
	if ctx.Err() != nil {
		return fmt.Errorf("guest %s: %w", name, context.Cause(ctx))
	}
	return err
}

// freeLine connects to one of the guest's lines that nobody uses. The locks are
// advisory, between calls of this command.
func freeLine(ctx context.Context, name string) (*guest.Client, func(), error) {
	for {
		for n := 1; n < guest.AgentPorts; n++ {
			found, err := filepath.Glob(filepath.Join(lab.RunRoot, "*", fmt.Sprintf("%s.agent%d", name, n)))
			if err != nil {
				return nil, nil, err
			}
			if len(found) > 1 {
				return nil, nil, fmt.Errorf("several running guests are named %s: %q", name, found)
			}
			if len(found) == 0 {
				continue
			}
			lock, err := os.OpenFile(found[0]+".lock", os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				return nil, nil, err
			}
			err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			if errors.Is(err, unix.EWOULDBLOCK) {
				_ = lock.Close()
				continue
			}
			client, err := guest.Dial(ctx, found[0])
			if err != nil {
				_ = lock.Close()
				return nil, nil, fmt.Errorf("guest %s: %w", name, err)
			}
			return client, func() { _, _ = client.Close(), lock.Close() }, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("guest %s: not running under %s, or all its lines are in use: %w", name, lab.RunRoot, context.Cause(ctx))
		}
	}
}
