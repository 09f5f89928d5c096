// SPDX-License-Identifier: Apache-2.0

// The agent is process 1 of a lab guest, from the first instruction after the
// kernel to power-off. It replaces initramfs scripts, udev, systemd and ssh,
// all of which cost many seconds under software emulation:
//
//  1. In the initramfs it loads the few modules that the root disk needs,
//     mounts the disk and moves into it (initramfs.go).
//  2. It mounts the kernel's file systems, lifts the limits that RDMA meets
//     and raises the loopback interface (system.go).
//  3. It serves commands on the virtio-serial ports named "ernic.agent.N",
//     one host per port (session.go, command.go), and buries orphaned
//     processes meanwhile (reaper.go).
//
// Words on the kernel command line steer it: ernic.hostname=NAME names the
// guest; ernic.probe ends it with a marker on the console as soon as process 1
// runs, which shows that this kind of virtual machine works at all.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/e2e/guest/wire"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "agent: this is process 1 of a lab guest; it does nothing elsewhere")
		os.Exit(2)
	}
	if err := boot(); err != nil {
		logf("boot failed: %v", err)
	}
	powerOff()
}

func boot() error {
	if err := mountKernelFS(""); err != nil {
		return err
	}
	words, err := kernelWords("/proc/cmdline")
	if err != nil {
		return err
	}
	if _, ok := words["ernic.probe"]; ok {
		logf("%s", wire.ProbeMarker)
		return nil
	}
	if err := enterRoot(words["ernic.root"]); err != nil {
		return err
	}
	if err := prepareSystem(words["ernic.hostname"]); err != nil {
		return err
	}
	return servePorts(newReaper())
}

// kernelWords splits the kernel command line. A word without "=" maps to "".
func kernelWords(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	words := map[string]string{}
	for _, w := range strings.Fields(string(b)) {
		k, v, _ := strings.Cut(w, "=")
		words[k] = v
	}
	return words, nil
}

// logf writes to the kernel log, so that the console shows it in order with
// what the kernel says.
func logf(format string, args ...any) {
	line := "ernic-agent: " + fmt.Sprintf(format, args...) + "\n"
	if f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
		// Level 4 (warning) passes the console's loglevel filter.
		_, err = f.WriteString("<4>" + line)
		_ = f.Close()
		if err == nil {
			return
		}
	}
	_, _ = os.Stderr.WriteString(line)
}

func powerOff() {
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		logf("power off: %v", err)
	}
	// Process 1 must not return: the kernel would panic.
	select {}
}
