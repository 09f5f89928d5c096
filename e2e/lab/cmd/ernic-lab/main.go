// SPDX-License-Identifier: Apache-2.0

// Command ernic-lab is the guest lab by hand: it prepares the artifacts, boots
// guests against running workers and runs commands in them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := root().ExecuteContext(ctx)
	var code exitCode
	var ended *guest.ExitError
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	case errors.As(err, &ended) && ended.Code > 0:
		os.Exit(ended.Code)
	default:
		fmt.Fprintln(os.Stderr, "ernic-lab:", err)
		os.Exit(1)
	}
}

// exitCode is an error that has been told already.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "ernic-lab",
		Short: "Boot real guests against ernic workers",
		Long: `The guest lab boots QEMU guests with the upstream ionic drivers and rdma-core.
It builds what they boot from once and keeps it in the user's cache directory.
All of it needs root; started by another user, the commands go through sudo and say so.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(prepareCommand(), bootCommand(), execCommand(), doctorCommand(), cleanCommand())
	return c
}

// asRoot wraps a command's work: another user than root runs it through sudo.
func asRoot(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if os.Geteuid() == 0 {
			return run(c, args)
		}
		sudo, err := exec.LookPath("sudo")
		if err != nil {
			return image.ErrNotRoot
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "ernic-lab: this step needs root, using sudo: ernic-lab %s\n", c.Name())
		argv := append([]string{"sudo", "-E", "env", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), self}, os.Args[1:]...)
		return syscall.Exec(sudo, argv, os.Environ()) //nolint:gosec // the same program with the same arguments
	}
}

func progress(w io.Writer, quiet bool) *image.Progress {
	if quiet {
		return nil
	}
	return image.NewProgress(w)
}
