// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"os"
	"strings"
)

// buildTools installs QEMU into a tree. The guests' QEMU processes run with it
// as their root directory; what they need from outside is mounted on /lab.
func (r *recipe) buildTools(base string) func(*build) error {
	return func(b *build) error {
		defer b.p.stage(b.log, "tools: installing QEMU")()
		t, err := b.copyOf(base+"/tree", "tree")
		if err != nil {
			return err
		}
		if err := t.prepareApt(false); err != nil {
			return err
		}
		if err := t.install(r.pins.Tools.Packages...); err != nil {
			return err
		}
		out, err := t.output("qemu-system-x86_64", "--version")
		if err != nil {
			return err
		}
		version := qemuVersion(out)
		if compareVersions(version, r.pins.Tools.QEMUMinimum) < 0 {
			return fmt.Errorf("the suite's QEMU is %s, the lab needs %s or newer", version, r.pins.Tools.QEMUMinimum)
		}
		b.versions["qemu"] = version
		devices, err := t.output("qemu-system-x86_64", "-machine", "none", "-device", "help")
		if err != nil {
			return err
		}
		if !strings.Contains(devices, `"vfio-user-pci"`) {
			return fmt.Errorf("QEMU %s is built without vfio-user-pci", version)
		}
		if err := os.Mkdir(t.path("lab"), 0o755); err != nil {
			return err
		}
		return t.dropDownloads()
	}
}

// qemuVersion takes the version from "QEMU emulator version 11.1.3 (Debian ...)".
func qemuVersion(out string) string {
	_, v, _ := strings.Cut(out, "version ")
	if f := strings.Fields(v); len(f) > 0 {
		return f[0]
	}
	return ""
}
