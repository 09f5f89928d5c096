// SPDX-License-Identifier: Apache-2.0

// Package site is a whole installation on one machine: a manager, one worker
// per guest, and real guests with the stock driver. Tests and the demonstration
// run on it. The guests' Ethernet goes over TAPs on a bridge, all in a network
// name space of their own, or over the mesh, which needs nothing of the host.
//
//	name space                                     machine
//	ernic-manager --- ernic-worker 1 --socket----- guest 1 (QEMU)
//	       \           |tap0|
//	        \          [bridge]
//	         \         |tap1|
//	          `------ ernic-worker 2 --socket----- guest 2
package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
)

// managerAddr is where the manager listens in a name space of its own.
const managerAddr = "127.0.0.1:6320"

// Options describes a site.
type Options struct {
	Bin      string // directory with the built programs
	Name     string // of the lab
	Guests   int    // 1 or more
	LogDir   string // where logs stay; default: gone with the site
	Progress *image.Progress
	// WorkerArgs is added to every worker's command line.
	WorkerArgs []string
	// Stats makes every worker keep a stats file, with up to 64 queue pairs, and
	// answer ernictl stats.
	Stats bool
	// Append is added to the command line of the guests' kernels.
	Append string
	// MTU of TAPs and bridge, 1500 unless set.
	MTU int
	// OverMesh puts the LIFs on the mesh: there are no TAPs and no name space.
	OverMesh bool
	// Cables puts a cable that can be cut between every worker and its peers. It
	// needs OverMesh.
	Cables bool
}

// Site is a running installation. Close ends all of it.
type Site struct {
	Lab     *lab.Lab
	Manager *lab.Process
	Nodes   []*Node

	options Options
	state   string // manager's state directory
	manager string // its address
	boots   int
}

// Node is one worker with its guest.
type Node struct {
	Index  int    // from 0; the worker's node id is Index+1
	Name   string // of the worker, as ernictl shows it
	MAC    string
	IP     string // the guest's address on the bridge
	TAP    string // "" when the LIF is on the mesh
	Socket string
	Stats  string // path of the stats file, "" without Options.Stats
	Worker *lab.Process
	Guest  *guest.Guest // nil before Boot
	Cable  *Cable       // nil without Options.Cables

	listen string // the worker's fabric listener, "" for any port
}

// New starts the manager and the workers. Guests start with Boot.
func New(ctx context.Context, o Options) (*Site, error) {
	for _, p := range []string{"ernic-manager", "ernic-worker", "ernictl"} {
		if _, err := os.Stat(filepath.Join(o.Bin, p)); err != nil {
			return nil, fmt.Errorf("program %s is not built (make build): %w", p, err)
		}
	}
	if o.Cables && !o.OverMesh {
		return nil, errors.New("site: there are cables over the mesh only")
	}
	taps := o.Guests
	if o.OverMesh {
		taps = 0
	}
	l, err := lab.New(ctx, lab.Options{
		Name: o.Name, LogDir: o.LogDir, Progress: o.Progress, Network: !o.OverMesh, Taps: taps, MTU: o.MTU,
	})
	if err != nil {
		return nil, err
	}
	s := &Site{Lab: l, options: o, manager: managerAddr}
	if o.OverMesh {
		s.manager = "127.0.0.1:0" // there may be other managers; StartManager learns the port
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Site) start(ctx context.Context) (err error) {
	// It ends with the lab, however that ends.
	s.state = filepath.Join(s.Lab.Dir(), "manager")
	if err = os.Mkdir(s.state, 0o700); err != nil {
		return err
	}
	if err = s.StartManager(ctx); err != nil {
		return err
	}
	for i := range s.options.Guests {
		n := &Node{
			Index: i, Name: fmt.Sprintf("vm%d", i+1),
			MAC:    fmt.Sprintf("02:aa:bb:cc:dd:%02x", i+1),
			IP:     fmt.Sprintf("192.168.200.%d", i+1),
			Socket: s.Lab.Socket(fmt.Sprintf("w%d", i+1)),
		}
		if !s.options.OverMesh {
			n.TAP = s.Lab.Network.Tap(i)
		}
		if s.options.Stats {
			n.Stats = filepath.Join(s.Lab.LogDir(), n.Name+".stats")
		}
		s.Nodes = append(s.Nodes, n)
		if s.options.Cables {
			// An address that is this process's alone keeps the port free for the
			// worker's next life.
			pid := os.Getpid()
			n.listen = fmt.Sprintf("127.%d.%d.%d:%d", 64+pid>>16&63, pid>>8&255, pid&255, 7000+i)
			if n.Cable, err = newCable(n.listen); err != nil {
				return err
			}
		}
		// One after the other, so that node ids follow the order.
		if err = s.StartWorker(ctx, n); err != nil {
			return err
		}
		if err = s.WaitNodes(ctx, i+1); err != nil {
			return err
		}
	}
	return nil
}

// listenField finds the manager's address in its log.
var listenField = regexp.MustCompile(`"listen":"([^"]+)"`)

// StartManager starts the manager on its state directory and waits until it
// listens.
func (s *Site) StartManager(ctx context.Context) (err error) {
	s.boots++
	s.Manager, err = s.Lab.Start(lab.Program{
		Name: fmt.Sprintf("manager-%d", s.boots), Path: s.Program("ernic-manager"),
		Args: []string{"--listen", s.manager, "--state-dir", s.state, "--log-level", "debug", "--log-format", "json"},
	})
	if err != nil {
		return err
	}
	if err := s.Manager.WaitLog(ctx, `"listen":`); err != nil {
		return err
	}
	if m := listenField.FindStringSubmatch(s.Manager.Log()); m != nil {
		s.manager = m[1]
	}
	return nil
}

// StartWorker starts the worker of n and waits until it is ready for a guest.
func (s *Site) StartWorker(ctx context.Context, n *Node) (err error) {
	s.boots++
	lif := "mesh"
	if n.TAP != "" {
		lif = "tap:" + n.TAP
	}
	args := append([]string{
		"--manager", s.manager, "--socket", n.Socket, "--lif", lif, "--mac", n.MAC, "--name", n.Name,
		"--log-level", "debug",
	}, s.options.WorkerArgs...)
	if n.Cable != nil {
		// A cut cable leaves the way to the manager, which would relay.
		args = append(args, "--listen", n.listen, "--advertise", n.Cable.Addr(), "--relay", "off")
	}
	if n.Stats != "" {
		args = append(args, "--stats-file", n.Stats, "--stats-qps", "64", "--status", "127.0.0.1:0")
	}
	n.Worker, err = s.Lab.Start(lab.Program{
		Name: fmt.Sprintf("worker-%s-%d", n.Name, s.boots), Path: s.Program("ernic-worker"), Args: args,
	})
	if err != nil {
		return err
	}
	return s.Lab.WaitSocket(ctx, n.Socket)
}

// Program is the path of one of the built programs.
func (s *Site) Program(name string) string { return filepath.Join(s.options.Bin, name) }

// Boot starts the guests of all nodes that have none, at once, and brings them
// up: drivers loaded, address set, RDMA port active.
func (s *Site) Boot(ctx context.Context) error {
	var nodes []*Node
	for _, n := range s.Nodes {
		if n.Guest == nil {
			nodes = append(nodes, n)
		}
	}
	raced, err := s.boot(ctx, nodes)
	for range bootAttempts - 1 {
		if !raced {
			break
		}
		s.options.Progress.Sayf("a guest's kernel met a race of the emulator, booting again")
		raced, err = s.boot(ctx, nodes)
	}
	return err
}

// bootAttempts bounds how often guests are booted because of it.
const bootAttempts = 3

// boot boots guests for nodes and brings them up. When a race of the emulator spoils
// that there are none.
func (s *Site) boot(ctx context.Context, nodes []*Node) (raced bool, err error) {
	var configs []guest.Config
	for _, n := range nodes {
		s.boots++
		configs = append(configs, guest.Config{
			Name: fmt.Sprintf("%s-%d", n.Name, s.boots), Devices: []guest.Device{{Socket: n.Socket}}, Append: s.options.Append,
		})
	}
	guests, err := s.Lab.Boot(ctx, configs...)
	if err == nil {
		for i, n := range nodes {
			n.Guest = guests[i]
		}
		err = bringUpAll(ctx, nodes)
	}
	if err == nil || s.Lab.Accel != guest.TCG {
		return false, err
	}
	for _, c := range configs {
		console, readErr := os.ReadFile(filepath.Join(s.Lab.Dir(), c.Name+".console"))
		raced = raced || readErr == nil && strings.Contains(string(console), guest.EmulatorRace)
	}
	if raced {
		for _, n := range nodes {
			if n.Guest != nil {
				n.Guest.Kill()
				n.Guest = nil
			}
		}
	}
	return raced, err
}

func bringUpAll(ctx context.Context, nodes []*Node) error {
	for _, n := range nodes {
		if err := n.BringUp(ctx); err != nil {
			return err
		}
	}
	return nil
}

// bringUp is what an administrator types once in a fresh guest.
const bringUp = `
modprobe ionic
ip link set eth0 up
ip addr add %s/24 dev eth0
modprobe ionic_rdma
modprobe ib_uverbs
modprobe rdma_ucm
for i in $(seq 600); do
  grep -q ACTIVE /sys/class/infiniband/ionic_0/ports/1/state 2>/dev/null && exit 0
  sleep 0.1
done
echo 'the RDMA port did not become active' >&2
exit 1
`

// BringUp loads the drivers and configures the interface of a fresh guest.
func (n *Node) BringUp(ctx context.Context) error {
	_, err := n.Guest.Run(ctx, guest.Shellf(bringUp, n.IP))
	return err
}

// Ernictl runs ernictl with args and returns what it printed.
func (s *Site) Ernictl(ctx context.Context, args ...string) (string, error) {
	return s.Lab.Run(ctx, append([]string{s.Program("ernictl"), "--manager", s.manager}, args...)...)
}

// ErnictlJSON runs ernictl with -o json and decodes what it printed into v.
func (s *Site) ErnictlJSON(ctx context.Context, v any, args ...string) error {
	out, err := s.Ernictl(ctx, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), v); err != nil {
		return fmt.Errorf("ernictl %v printed no JSON: %w\n%s", args, err, out)
	}
	return nil
}

// Poll calls f until it returns nil, for as long as ctx lives.
func Poll(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// WaitNodes waits until count workers are alive.
func (s *Site) WaitNodes(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return Poll(ctx, func() error {
		nodes, err := s.ListNodes(ctx)
		if err != nil {
			return err
		}
		alive := 0
		for _, n := range nodes {
			if n.ID != 0 && n.State == "alive" {
				alive++
			}
		}
		if alive != count {
			return fmt.Errorf("%d workers are alive, want %d", alive, count)
		}
		return nil
	})
}

// NodeID asks for the id of n's worker. The next worker of a node gets another
// one when the last was killed: the manager keeps that one's for it.
func (s *Site) NodeID(ctx context.Context, n *Node) (int, error) {
	nodes, err := s.ListNodes(ctx)
	if err != nil {
		return 0, err
	}
	for _, l := range nodes {
		if l.Name == n.Name && l.State == "alive" {
			return int(l.ID), nil
		}
	}
	return 0, fmt.Errorf("no worker of %s is alive", n.Name)
}

// Close ends guests, workers and manager and removes all that was made.
func (s *Site) Close() error {
	errs := []error{s.Lab.Close()}
	for _, n := range s.Nodes {
		if n.Cable != nil {
			errs = append(errs, n.Cable.Close())
		}
	}
	return errors.Join(errs...)
}
