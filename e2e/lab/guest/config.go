// SPDX-License-Identifier: Apache-2.0

// Package guest runs one virtual machine of the lab: QEMU as a child process
// that cannot outlive the test, the agent inside it, and the lines to both.
//
//	g, err := guest.Boot(ctx, guest.Config{Artifacts: a, Dir: dir, Name: "g1",
//		Devices: []guest.Device{{Socket: "/run/x/worker1.sock"}}})
//	r, err := g.Run(ctx, guest.Shell("modprobe ionic; ip -br link"))
//	...
//	err = g.Shutdown(ctx)
package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ernic-dev/ernic/e2e/lab/image"
)

// PatchedProvider selects, as an environment variable of a command in a guest,
// the libionic with the lab's patches: UC queue pairs, and a flush that finds
// its receives. Without it a command uses Debian's own libionic.
const PatchedProvider = "RDMAV_DRIVERS=/opt/ernic/lib/libionic"

// RDMACoreTests is the directory of rdma-core's Python suite in a guest.
const RDMACoreTests = "/opt/ernic/rdma-core-tests"

// AgentPorts is the number of lines to the agent. Port 0 belongs to the program
// that boots the guest, the others are free for whoever finds their socket.
const AgentPorts = 4

// maxSocketPath is sizeof(sun_path) less its terminating zero.
const maxSocketPath = 107

// Accel says what runs the guest's instructions.
type Accel string

// The accelerators of the lab.
const (
	TCG Accel = "tcg" // software, everywhere
	KVM Accel = "kvm" // hardware; see SelectAccel
)

// Config describes a guest. Zero values mean the default.
type Config struct {
	Artifacts *image.Artifacts
	// Dir holds the guest's sockets and logs, all named after Name. It must
	// exist, and its path must be short: a socket path has at most 107 bytes.
	Dir  string
	Name string
	// Accel is TCG unless set.
	Accel Accel
	// VCPUs is 4 unless set. With fewer the ionic driver makes no RDMA device:
	// it needs four event queues and has at most one for each processor.
	VCPUs int
	// Memory in MiB, 1024 unless set.
	Memory  int
	Devices []Device
	// SparePorts is the number of empty root ports, for HotPlug.
	SparePorts int
	Links      []Link
	// Append is added to the kernel's command line.
	Append string
	// QEMUArgs is added to QEMU's command line.
	QEMUArgs []string
}

// Device is a PCI function that a vfio-user server offers.
type Device struct {
	// Socket is the server's Unix socket on the host. The server must listen
	// before the guest starts.
	Socket string
	// OnRootComplex puts the device on the root bus. Otherwise it is behind a
	// root port of its own, as a card is.
	OnRootComplex bool
	// Properties of vfio-user-pci, such as "x-msg-timeout".
	Properties map[string]any
}

// Link is one end of a virtio-net cable between two guests of one host.
type Link struct {
	// Socket is the Unix socket of the cable, the same at both ends.
	Socket string
	// Listen is true at one end.
	Listen bool
	MAC    string
	MTU    int // 1500 unless set
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)

func (c Config) withDefaults() (Config, error) {
	if c.Accel == "" {
		c.Accel = TCG
	}
	if c.VCPUs == 0 {
		c.VCPUs = 4
	}
	if c.Memory == 0 {
		c.Memory = 1024
	}
	var errs []error
	if c.Artifacts == nil {
		errs = append(errs, errors.New("no artifacts to boot from"))
	}
	if !nameForm.MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("name %q: lower-case letters, digits and hyphens, at most 31", c.Name))
	}
	if c.Accel != TCG && c.Accel != KVM {
		errs = append(errs, fmt.Errorf("accelerator %q: want %s or %s", c.Accel, TCG, KVM))
	}
	if c.VCPUs < 1 || c.Memory < 128 {
		errs = append(errs, fmt.Errorf("%d processors, %d MiB: want at least 1 and 128", c.VCPUs, c.Memory))
	}
	sockets := []string{c.file("agent0")}
	for _, d := range c.Devices {
		sockets = append(sockets, d.Socket)
	}
	for _, l := range c.Links {
		sockets = append(sockets, l.Socket)
	}
	for _, s := range sockets {
		if !filepath.IsAbs(s) {
			errs = append(errs, fmt.Errorf("socket %q: want an absolute path", s))
		}
		if len(s) > maxSocketPath {
			errs = append(errs, fmt.Errorf("socket %q: %d bytes, a socket path has at most %d", s, len(s), maxSocketPath))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return c, fmt.Errorf("guest %q: %w", c.Name, err)
	}
	return c, nil
}

// file is the host path of one of the guest's files.
func (c Config) file(kind string) string { return filepath.Join(c.Dir, c.Name+"."+kind) }

// mount is a host directory that QEMU sees in its own root directory.
type mount struct{ host, inside string }

// command is QEMU's command line and the directories it speaks of.
type command struct {
	mounts []mount
	args   []string
}

// inside maps a host path to QEMU's root directory, mounting its directory.
func (q *command) inside(path string) string {
	dir := filepath.Dir(path)
	for _, m := range q.mounts {
		if m.host == dir {
			return filepath.Join(m.inside, filepath.Base(path))
		}
	}
	m := mount{dir, fmt.Sprintf("/lab/%d", len(q.mounts))}
	q.mounts = append(q.mounts, m)
	return filepath.Join(m.inside, filepath.Base(path))
}

func (q *command) add(args ...string) { q.args = append(q.args, args...) }

func (q *command) device(properties map[string]any) error {
	b, err := json.Marshal(properties)
	if err != nil {
		return err
	}
	q.add("-device", string(b))
	return nil
}

// kernelWords keeps the boot short: no search for hardware that is not there,
// no clock watchdog that emulation trips, no security modules.
const kernelWords = "console=ttyS0 quiet loglevel=5 panic=-1 net.ifnames=0 mitigations=off nokaslr audit=0 apparmor=0 " +
	"no_timer_check nmi_watchdog=0 tsc=reliable i8042.noaux i8042.nokbd"

// emulationWords are for guests without hardware support. On a busy machine the
// kernel measures its delay loop wrongly by a factor of ten; this value, for a
// clock of 4 GHz, is never too short.
const emulationWords = "lpj=16000000"

// machine starts the command line with what every guest has.
func (c Config) machine(words string) *command {
	q := &command{}
	q.add("qemu-system-x86_64", "-name", c.Name, "-no-user-config", "-nodefaults", "-display", "none", "-monitor", "none", "-no-reboot",
		"-machine", "q35,memory-backend=ram,smbus=off,sata=off",
		// Shared memory, because a vfio-user server maps it.
		"-object", fmt.Sprintf("memory-backend-memfd,id=ram,size=%dM,share=on", c.Memory),
		"-m", fmt.Sprintf("%dM", c.Memory), "-smp", fmt.Sprint(c.VCPUs))
	kernel := c.Artifacts.Kernel
	if c.Accel == KVM {
		q.add("-accel", "kvm", "-cpu", "host")
	} else {
		q.add("-accel", "tcg,thread=multi", "-cpu", "max")
		kernel = c.Artifacts.Unpacked
		words = fmt.Sprintf("%s tsc_early_khz=%d %s", emulationWords, tscKHz(), words)
	}
	q.add("-kernel", q.inside(kernel), "-initrd", q.inside(c.Artifacts.Initramfs), "-append",
		strings.TrimSpace(kernelWords+" "+words+" "+c.Append))
	return q
}

// commandLine is QEMU's command line for the guest.
func (c Config) commandLine() (*command, error) {
	q := c.machine("ernic.root=/dev/vda ernic.hostname=" + c.Name)
	q.add("-drive", "if=virtio,format=raw,snapshot=on,file="+q.inside(c.Artifacts.Disk))
	q.add("-serial", "file:"+q.inside(c.file("console")))
	q.add("-qmp", "unix:"+q.inside(c.file("qmp"))+",server=on,wait=off")
	q.add("-device", fmt.Sprintf("virtio-serial-pci,max_ports=%d", AgentPorts+1))
	for i := range AgentPorts {
		q.add("-chardev", fmt.Sprintf("socket,id=agent%d,server=on,wait=off,path=%s", i, q.inside(c.file(fmt.Sprintf("agent%d", i)))),
			"-device", fmt.Sprintf("virtserialport,chardev=agent%d,name=ernic.agent.%d", i, i))
	}
	for i, l := range c.Links {
		if err := q.link(i, l); err != nil {
			return nil, err
		}
	}
	for i, d := range c.Devices {
		if err := q.vfioUser(i, d); err != nil {
			return nil, err
		}
	}
	for i := range c.SparePorts {
		// The firmware leaves 2 MiB of addresses for a card that is not there yet; the
		// doorbells alone take 4.
		q.add("-device", fmt.Sprintf("pcie-root-port,id=%s,slot=%d,mem-reserve=16M", sparePort(i), len(c.Devices)+i+1))
	}
	q.add(c.QEMUArgs...)
	return q, nil
}

func sparePort(i int) string { return fmt.Sprintf("spare%d", i) }

func (q *command) link(i int, l Link) error {
	netdev := map[string]any{"type": "stream", "id": fmt.Sprintf("net%d", i), "server": l.Listen,
		"addr": map[string]any{"type": "unix", "path": q.inside(l.Socket)}}
	if !l.Listen {
		// The other guest may start later.
		netdev["reconnect-ms"] = 200
	}
	b, err := json.Marshal(netdev)
	if err != nil {
		return err
	}
	q.add("-netdev", string(b))
	dev := map[string]any{"driver": "virtio-net-pci", "netdev": fmt.Sprintf("net%d", i)}
	if l.MAC != "" {
		dev["mac"] = l.MAC
	}
	if l.MTU != 0 {
		dev["host_mtu"] = l.MTU
	}
	return q.device(dev)
}

func (q *command) vfioUser(i int, d Device) error {
	dev := map[string]any{"driver": "vfio-user-pci", "id": fmt.Sprintf("nic%d", i),
		"socket": map[string]any{"type": "unix", "path": q.inside(d.Socket)}}
	if !d.OnRootComplex {
		port := fmt.Sprintf("port%d", i)
		q.add("-device", fmt.Sprintf("pcie-root-port,id=%s,slot=%d", port, i+1))
		dev["bus"] = port
	}
	for k, v := range d.Properties {
		dev[k] = v
	}
	return q.device(dev)
}
