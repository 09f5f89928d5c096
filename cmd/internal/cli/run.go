// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit statuses.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// EnvPrefix begins the name of every environment variable that stands for a
// flag: --log-level is ERNIC_LOG_LEVEL.
const EnvPrefix = "ERNIC_"

// graceful is what a program has to end after SIGTERM; then it is ended.
const graceful = 2 * time.Second

// UsageError is an error of the command line, status 2.
type UsageError struct{ Err error }

// Error returns the text of the error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error inside.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Main runs a program and does not return.
func Main(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // a second signal ends the process at once
		time.Sleep(graceful)
		fmt.Fprintf(os.Stderr, "%s: did not end within %v of the signal\n", root.Name(), graceful)
		os.Exit(ExitFailure)
	}()
	os.Exit(Run(ctx, root, os.Args[1:], os.Stderr))
}

// Run executes root with args and returns the exit status. What went wrong is
// written to stderr in one line.
func Run(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	prepare(root)
	root.SetArgs(args)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
	var usage *UsageError
	if errors.As(err, &usage) {
		fmt.Fprintf(stderr, "Try '%s --help'.\n", cmd.CommandPath())
		return ExitUsage
	}
	return ExitFailure
}

// prepare gives root and its commands what they have in common.
func prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.AddCommand(versionCommand(root.Name()))
	walk(root, func(c *cobra.Command) {
		c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &UsageError{err} })
		args := c.Args
		if args == nil {
			args = cobra.NoArgs
			if c.HasSubCommands() && c.RunE == nil {
				args = noCommand
				c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			}
		}
		c.Args = func(c *cobra.Command, a []string) error {
			if err := args(c, a); err != nil {
				return &UsageError{err}
			}
			return nil
		}
		run := c.PreRunE
		c.PreRunE = func(c *cobra.Command, a []string) error {
			if err := fromEnvironment(c.Flags()); err != nil {
				return err
			}
			if run != nil {
				return run(c, a)
			}
			return nil
		}
	})
}

func noCommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())
	}
	return nil
}

func walk(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		walk(sub, f)
	}
}

// fromEnvironment sets the flags that the command line does not set and the
// environment does.
func fromEnvironment(flags *pflag.FlagSet) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		name := EnvName(f.Name)
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || err != nil || f.Name == "help" {
			return
		}
		if e := flags.Set(f.Name, value); e != nil {
			err = Usagef("environment variable %s: %w", name, e)
		}
	})
	return err
}

// EnvName is the environment variable that stands for a flag.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
