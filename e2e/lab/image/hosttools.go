// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// hostTools maps each program that the lab runs on the host to Debian's package
// for it.
var hostTools = []struct{ program, pkg string }{
	{"debootstrap", "debootstrap"},
	{"mke2fs", "e2fsprogs"},
	{"ip", "iproute2"},
	{"bridge", "iproute2"},
	{"dnsmasq", "dnsmasq-base"}, // serves guests on TAPs
	{"unshare", "util-linux"},
	{"mount", "mount"},
	{"chroot", "coreutils"},
	{"apt-get", "apt"},
}

// Sbin directories are not in the PATH of every user, but root's programs are
// found there.
func lookTool(name string) error {
	if _, err := exec.LookPath(name); err == nil {
		return nil
	}
	for _, d := range []string{"/usr/sbin", "/sbin"} {
		if st, err := os.Stat(d + "/" + name); err == nil && st.Mode()&0o111 != 0 {
			return nil
		}
	}
	return fmt.Errorf("no program %s", name)
}

// MissingTools returns the Debian packages that bring what the host lacks.
func MissingTools() []string { return missingTools(lookTool) }

func missingTools(look func(string) error) []string {
	var pkgs []string
	for _, t := range hostTools {
		if look(t.program) != nil && !slices.Contains(pkgs, t.pkg) {
			pkgs = append(pkgs, t.pkg)
		}
	}
	return pkgs
}

// installTools brings the missing host programs in, and says so.
func installTools(ctx context.Context, p *Progress) error {
	pkgs := MissingTools()
	if len(pkgs) == 0 {
		return nil
	}
	list := strings.Join(pkgs, " ")
	if slices.Contains(pkgs, "apt") {
		return fmt.Errorf("this machine has no apt; the guest lab needs a Debian machine with: %s", list)
	}
	prefix := []string{}
	if os.Geteuid() != 0 {
		if _, err := exec.LookPath("sudo"); err != nil {
			return fmt.Errorf("missing programs, and no root rights to install them: apt-get install %s", list)
		}
		prefix = []string{"sudo"}
	}
	run := func(args ...string) error {
		args = append(prefix[:len(prefix):len(prefix)], args...)
		p.Sayf("installing host programs: %s", strings.Join(args, " "))
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s\ninstall by hand: apt-get install %s", strings.Join(args, " "), err, out, list)
		}
		return nil
	}
	// Another apt, such as that of a machine that has just started, may be at work.
	patient := []string{"-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"}
	install := append(append([]string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get"}, patient...), "install", "-y", "--no-install-recommends")
	err := attempt(ctx, p, func() error {
		// One of many sources may be broken; what counts is the installation.
		updated := run(append(append([]string{"apt-get"}, patient...), "update")...)
		installed := run(append(install[:len(install):len(install)], pkgs...)...)
		if installed != nil {
			return errors.Join(updated, installed)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if still := MissingTools(); len(still) > 0 {
		return fmt.Errorf("still missing after the installation: %s", strings.Join(still, " "))
	}
	return nil
}

// ErrNotRoot says that the lab cannot work with the rights of this process.
var ErrNotRoot = errors.New("the guest lab needs root (chroot, name spaces, TAP devices): run this with sudo -E")
