// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
)

func prepareCommand() *cobra.Command {
	var quiet bool
	c := &cobra.Command{
		Use:   "prepare",
		Short: "Build what guests boot from, unless it is there",
		Long: `Builds QEMU's tree, the guests' disk with the kernel, ionic_rdma.ko and the
patched libionic, and the initramfs. The first run takes about two minutes and
1.5 GB of disk; later ones take a second. Packages come from the Debian mirror
that this machine's apt uses, or from ` + image.MirrorVariable + `.`,
		Args: cobra.NoArgs,
		RunE: asRoot(func(c *cobra.Command, _ []string) error {
			a, err := image.Prepare(c.Context(), progress(c.ErrOrStderr(), quiet))
			if err != nil {
				return err
			}
			if _, err := guest.SelectAccel(c.Context(), a, progress(c.ErrOrStderr(), quiet)); err != nil {
				return err
			}
			return printVersions(c.OutOrStdout(), a.Versions)
		}),
	}
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	return c
}

func printVersions(w io.Writer, versions map[string]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		_, _ = fmt.Fprintf(t, "%s\t%s\n", name, versions[name])
	}
	return t.Flush()
}

func doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say whether the lab can work on this machine, and what it has",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			failed := false
			say := func(ok bool, format string, args ...any) {
				mark := "ok      "
				if !ok {
					mark, failed = "MISSING ", true
				}
				_, _ = fmt.Fprintln(c.OutOrStdout(), mark+fmt.Sprintf(format, args...))
			}
			say(os.Geteuid() == 0, "root rights (the lab needs chroot, name spaces and TAP devices)")
			pkgs := image.MissingTools()
			say(len(pkgs) == 0, "host programs%s", prefixed(": apt-get install ", strings.Join(pkgs, " ")))
			_, err := os.Stat("/dev/net/tun")
			say(err == nil, "/dev/net/tun for TAPs")
			dir, err := image.Dir()
			if err != nil {
				return err
			}
			free, err := freeSpace(dir)
			say(err == nil && free > 4<<30, "disk space for %s: %.1f GB free, 4 are needed to build", dir, float64(free)/1e9)
			list, err := image.List()
			if err != nil {
				return err
			}
			for _, l := range list {
				if l.Manifest == nil {
					_, _ = fmt.Fprintf(c.OutOrStdout(), "cache   %s: incomplete\n", l.Dir)
					continue
				}
				_, _ = fmt.Fprintf(c.OutOrStdout(), "cache   %s: built %s\n", l.Dir, l.Manifest.Built.Local().Format(time.DateTime))
			}
			if failed {
				return exitCode(1)
			}
			return doctorAccel(c)
		},
	}
}

// doctorAccel probes KVM afresh, which needs the artifacts.
func doctorAccel(c *cobra.Command) error {
	a, err := image.Prepare(c.Context(), progress(c.ErrOrStderr(), false))
	if err != nil {
		return err
	}
	if err := guest.ProbeKVM(c.Context(), a); err != nil {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "note    KVM: %v; guests run under software emulation (TCG)\n", err)
	} else {
		_, _ = fmt.Fprintln(c.OutOrStdout(), "ok      KVM boots the guests' kernel")
	}
	return printVersions(c.OutOrStdout(), a.Versions)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// freeSpace is the number of free bytes where dir is or will be.
func freeSpace(dir string) (uint64, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if err == nil {
			return st.Bavail * uint64(st.Bsize), nil
		}
		i := strings.LastIndexByte(dir, '/')
		if !errors.Is(err, unix.ENOENT) || i <= 0 {
			return 0, err
		}
		dir = dir[:i]
	}
}

func cleanCommand() *cobra.Command {
	var stale bool
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove what prepare has built",
		Args:  cobra.NoArgs,
		RunE: asRoot(func(c *cobra.Command, _ []string) error {
			removed, err := image.Clean(c.Context(), progress(c.ErrOrStderr(), false), !stale)
			for _, d := range removed {
				_, _ = fmt.Fprintln(c.OutOrStdout(), "removed", d)
			}
			return err
		}),
	}
	c.Flags().BoolVar(&stale, "stale", false, "remove only what this checkout does not use any more")
	return c
}
