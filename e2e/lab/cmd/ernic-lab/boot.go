// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
)

type bootFlags struct {
	name     string
	sockets  []string
	n        int
	link     bool
	vcpus    int
	memory   int
	script   string
	appended string
	qemuArgs []string
	quiet    bool
	detached bool
}

func bootCommand() *cobra.Command {
	var f bootFlags
	c := &cobra.Command{
		Use:   "boot [flags] [--socket PATH]...",
		Short: "Boot guests and run commands in them",
		Long: `Boots guests, gives each --socket to the next guest in turn, and then
  - with --script, runs the script in the first guest and ends;
  - with --wait, waits for ^C; "ernic-lab exec" runs commands meanwhile;
  - otherwise reads commands from standard input. "2: COMMAND" runs in guest 2.

Guests are named NAME1, NAME2 and so on. When the command ends, they end.`,
		Example: `  ernic-lab boot --socket /run/w1.sock --socket /run/w2.sock -n 2
  ernic-lab boot --socket /run/w1.sock --script probe.sh
  ernic-lab boot -n 2 --link --wait          # plain virtio-net between two guests
  ernic-lab exec g1 -- 'modprobe ionic; ip -br link'`,
		Args: cobra.NoArgs,
		RunE: asRoot(func(c *cobra.Command, _ []string) error { return boot(c, f) }),
	}
	c.Flags().StringVar(&f.name, "name", "g", "start of the guests' names; two running labs need two names")
	c.Flags().StringArrayVar(&f.sockets, "socket", nil, "vfio-user socket of a running worker; may be repeated")
	c.Flags().IntVarP(&f.n, "n", "n", 0, "number of guests (default: one for each socket, at least one)")
	c.Flags().BoolVar(&f.link, "link", false, "join two guests by a virtio-net cable (eth0 of each)")
	c.Flags().IntVar(&f.vcpus, "vcpus", 4, "processors of each guest; the RDMA driver needs 4")
	c.Flags().IntVar(&f.memory, "memory", 1024, "memory of each guest in MiB")
	c.Flags().StringVar(&f.script, "script", "", "file with a shell script for the first guest, - for standard input")
	c.Flags().StringVar(&f.appended, "append", "", "words added to the kernel's command line")
	c.Flags().StringArrayVar(&f.qemuArgs, "qemu-arg", nil, "argument added to QEMU's command line; may be repeated")
	c.Flags().BoolVar(&f.detached, "wait", false, "read no commands, wait for ^C")
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	return c
}

func (f bootFlags) configs(l *lab.Lab) ([]guest.Config, error) {
	n := max(f.n, len(f.sockets), 1)
	if f.n != 0 && f.n < len(f.sockets) {
		return nil, fmt.Errorf("--n %d: fewer guests than the %d sockets", f.n, len(f.sockets))
	}
	if f.link && f.n == 0 {
		n = max(n, 2)
	}
	cfgs := make([]guest.Config, n)
	for i := range cfgs {
		cfgs[i] = guest.Config{Name: f.name + strconv.Itoa(i+1), VCPUs: f.vcpus, Memory: f.memory, Append: f.appended, QEMUArgs: f.qemuArgs}
		if i < len(f.sockets) {
			path, err := filepath.Abs(f.sockets[i])
			if err != nil {
				return nil, err
			}
			cfgs[i].Devices = []guest.Device{{Socket: path}}
		}
	}
	if f.link {
		if n != 2 {
			return nil, fmt.Errorf("--link joins two guests, not %d", n)
		}
		a, b := l.Link("cable")
		cfgs[0].Links, cfgs[1].Links = []guest.Link{a}, []guest.Link{b}
	}
	return cfgs, nil
}

func boot(c *cobra.Command, f bootFlags) (err error) {
	ctx := c.Context()
	p := progress(c.ErrOrStderr(), f.quiet)
	l, err := lab.New(ctx, lab.Options{Name: f.name, FixedDir: true, Progress: p})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	cfgs, err := f.configs(l)
	if err != nil {
		return err
	}
	start := time.Now()
	guests, err := l.Boot(ctx, cfgs...)
	if err != nil {
		return err
	}
	for _, g := range guests {
		p.Sayf("%s has booted in %.1f s, QEMU is process %d, logs are %s", g.Name(), time.Since(start).Seconds(), g.PID(), strings.Join(g.Files(), " "))
	}
	switch {
	case f.script != "":
		return runScript(ctx, c, guests[0], f.script)
	case f.detached:
		<-ctx.Done()
		return nil
	}
	return interact(ctx, c, guests)
}

func runScript(ctx context.Context, c *cobra.Command, g *guest.Guest, path string) error {
	var text []byte
	var err error
	if path == "-" {
		text, err = io.ReadAll(c.InOrStdin())
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return err
	}
	return runIn(ctx, c, g, string(text))
}

func runIn(ctx context.Context, c *cobra.Command, g *guest.Guest, script string) error {
	cmd := guest.Shell(script)
	cmd.Stdout, cmd.Stderr = c.OutOrStdout(), c.ErrOrStderr()
	_, err := g.Run(ctx, cmd)
	return err
}

// interact runs each line of standard input in a guest.
func interact(ctx context.Context, c *cobra.Command, guests []*guest.Guest) error {
	lines, ended := make(chan string), make(chan error, 1)
	go func() {
		s := bufio.NewScanner(c.InOrStdin())
		for s.Scan() {
			lines <- s.Text()
		}
		ended <- s.Err()
	}()
	_, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS)
	terminal := err == nil
	for {
		if terminal {
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "%s# ", guests[0].Name())
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case line := <-lines:
			g, script, err := target(guests, line)
			if err == nil && script != "" {
				err = runIn(ctx, c, g, script)
			}
			var x *guest.ExitError
			switch {
			case errors.As(err, &x):
				_, _ = fmt.Fprintf(c.ErrOrStderr(), "[exit status %d]\n", x.Code)
			case err != nil:
				_, _ = fmt.Fprintln(c.ErrOrStderr(), err)
			}
		}
	}
}

var targetForm = regexp.MustCompile(`^([0-9]+):\s*(.*)$`)

// target splits "2: command" into guest 2 and the command.
func target(guests []*guest.Guest, line string) (*guest.Guest, string, error) {
	line = strings.TrimSpace(line)
	m := targetForm.FindStringSubmatch(line)
	if m == nil {
		return guests[0], line, nil
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return nil, "", err
	}
	if n < 1 || n > len(guests) {
		return nil, "", fmt.Errorf("no guest %d, there are %d", n, len(guests))
	}
	return guests[n-1], m[2], nil
}
