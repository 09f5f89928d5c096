// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/e2e/lab/child"
)

// Bridge is the name of the bridge in each lab network.
const Bridge = "br0"

// Network is a network name space with a bridge and TAPs on it. Only programs
// started in it see them. The loopback interface is up, so programs in it reach
// each other there.
type Network struct {
	thread *child.Thread
	inode  uint64 // of the name space
	taps   []string
}

// NewNetwork makes a name space with n TAPs, named by Tap. mtu 0 is the default
// of 1500 bytes.
func NewNetwork(ctx context.Context, n, mtu int) (*Network, error) {
	if n < 0 || n > 1000 || mtu < 0 || mtu > 65535 {
		return nil, fmt.Errorf("lab network: %d TAPs of %d bytes: want up to 1000 and 65535", n, mtu)
	}
	space := &Network{}
	var err error
	if space.thread, err = child.NewThread(space.isolate); err != nil {
		return nil, fmt.Errorf("lab network: %w", err)
	}
	if err := space.populate(ctx, n, mtu); err != nil {
		space.Close()
		return nil, fmt.Errorf("lab network: %w", err)
	}
	return space, nil
}

// isolate moves the calling thread into fresh network and mount name spaces.
// The second one is for /sys, which shows the interfaces of whoever mounted it.
func (n *Network) isolate() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make name spaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	if err := unix.Mount("lab", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return err
	}
	n.inode = st.Ino
	return nil
}

func (n *Network) populate(ctx context.Context, taps, mtu int) error {
	if mtu == 0 {
		mtu = 1500
	}
	size := fmt.Sprint(mtu)
	script := [][]string{
		{"ip", "link", "set", "lo", "up"},
		// No spanning tree and no snooping: frames pass from the first one on.
		{"ip", "link", "add", Bridge, "mtu", size, "type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"},
		{"ip", "link", "set", Bridge, "up"},
	}
	for i := range taps {
		tap := fmt.Sprintf("tap%d", i)
		n.taps = append(n.taps, tap)
		script = append(script,
			[]string{"ip", "tuntap", "add", "dev", tap, "mode", "tap"},
			[]string{"ip", "link", "set", tap, "mtu", size, "master", Bridge, "up"})
	}
	for _, argv := range script {
		if _, err := n.Run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

// Tap is the name of TAP i, counted from 0.
func (n *Network) Tap(i int) string { return n.taps[i] }

// Inode is the number of the name space, as in /proc/PID/ns/net.
func (n *Network) Inode() uint64 { return n.inode }

// Start starts cmd inside the name space, as a child that ends with this
// process and with the network.
func (n *Network) Start(cmd *exec.Cmd) error { return n.thread.Start(cmd) }

// Run runs a program inside the name space and returns its standard output.
func (n *Network) Run(ctx context.Context, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if cmd.Err != nil {
		if p := "/usr/sbin/" + argv[0]; fileExists(p) {
			cmd.Path, cmd.Err = p, nil
		}
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	err := n.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Dial connects to an address inside the name space. The address must be an IP
// literal: looking names up happens elsewhere.
func (n *Network) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		return nil, fmt.Errorf("dial %s in the lab's network: not an IP address", address)
	}
	err = n.thread.Do(func() error {
		var d net.Dialer
		var err error
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Close ends the network and the programs that still run in it.
func (n *Network) Close() { n.thread.Close() }
