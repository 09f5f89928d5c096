// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/netport"
)

// inside marks the test process that has a network namespace of its own.
const inside = "ERNIC_TAP_TEST_NAMESPACE"

// TestMain runs the tests in a new network namespace, and a new user namespace
// where it is not root, so that no interface of the host is touched.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests in a network namespace:", err)
		os.Exit(1)
	}
}

func ip(t testing.TB, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// newTAP makes a TAP with the address 10.99.0.1.
func newTAP(t testing.TB, name, flags string) {
	t.Helper()
	ip(t, "tuntap add dev "+name+" mode tap "+flags)
	t.Cleanup(func() { exec.Command("ip", "link", "del", name).Run() })
	ip(t, "link set dev "+name+" address 02:00:00:00:00:aa")
	ip(t, "addr add 10.99.0.1/24 dev "+name)
	ip(t, "link set "+name+" up")
}

// arp asks for 10.99.0.1.
func arp() []byte {
	f := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1)
	f = append(f, 2, 0, 0, 0, 0, 1, 10, 99, 0, 2)
	return append(f, 0, 0, 0, 0, 0, 0, 10, 99, 0, 1)
}

// exchange asks on queue q until the answer comes on the same queue: the host's
// side drops frames for up to a second after the interface got its carrier.
func exchange(t *testing.T, p netport.Port, q int) {
	t.Helper()
	got := make(chan error, 1)
	go func() {
		b := netport.NewBatch(8, 2048)
		for {
			n, err := p.Receive(q, b)
			if err != nil {
				got <- err
				return
			}
			for i := range n {
				if f := b.Frame(i); len(f) >= 42 && f[12] == 8 && f[13] == 6 && f[21] == 2 && bytes.Equal(f[22:28], []byte{2, 0, 0, 0, 0, 0xaa}) {
					got <- nil
					return
				}
			}
		}
	}()
	limit := time.After(time.Minute)
	for {
		lastErr := p.Send(q, arp())
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
			return
		case <-time.After(50 * time.Millisecond):
		case <-limit:
			t.Fatalf("no ARP reply, the last send: %v", lastErr)
		}
	}
}

func TestPort_FramesBothWays(t *testing.T) {
	newTAP(t, "t0", "")
	p, err := Open("t0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Name() != "tap:t0" || p.Queues() != 1 {
		t.Errorf("%s with %d queues", p.Name(), p.Queues())
	}
	for range 3 {
		exchange(t, p, 0)
	}
}

func TestPort_SeveralQueues(t *testing.T) {
	newTAP(t, "t1", "multi_queue")
	p, err := Open("t1", Options{Queues: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Queues() != 2 {
		t.Fatalf("%d queues", p.Queues())
	}
	for q := range 2 {
		exchange(t, p, q)
	}
}

func TestOpen_SaysWhatIsWrong(t *testing.T) {
	newTAP(t, "t2", "")
	newTAP(t, "t3", "multi_queue")
	ip(t, "tuntap add dev n0 mode tun")
	t.Cleanup(func() { exec.Command("ip", "link", "del", "n0").Run() })
	held, err := Open("t2", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, tc := range []struct {
		name   string
		queues int
		want   string
	}{
		{"missing0", 1, "tap missing0: the host has no such interface; make it with: ip tuntap add dev missing0 mode tap"},
		{"t2", 1, "tap t2: another process has the interface open"},
		{"lo", 1, "tap lo: the interface is no TAP"},
		{"n0", 2, "tap n0: the interface is no TAP"},
		{"t3", -1, "tap t3: -1 queues"},
		{"t3", 257, "tap t3: 257 queues"},
		{"", 1, "has 1 to 15 characters"},
		{"averyveryverylongname", 1, "has 1 to 15 characters"},
	} {
		p, err := Open(tc.name, Options{Queues: tc.queues})
		if err == nil {
			p.Close()
			t.Errorf("%q was opened", tc.name)
		} else if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %q", tc.name, err, tc.want)
		}
	}
	if out, _ := exec.Command("ip", "link", "show", "missing0").CombinedOutput(); !strings.Contains(string(out), "does not exist") {
		t.Errorf("opening a missing interface made it: %s", out)
	}
}

func TestClose_LeavesTheInterface(t *testing.T) {
	newTAP(t, "t4", "")
	for range 2 {
		p, err := Open("t4", Options{})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
	}
	ip(t, "link show t4")
}

func TestClose_EndsReceive(t *testing.T) {
	newTAP(t, "t5", "")
	p, err := Open("t5", Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		b := netport.NewBatch(8, 2048)
		for {
			if _, err := p.Receive(0, b); err != nil {
				got <- err
				return
			}
		}
	}()
	time.Sleep(10 * time.Millisecond)
	p.Close()
	if err := <-got; !errors.Is(err, netport.ErrClosed) {
		t.Errorf("receive after close: %v", err)
	}
	if err := p.Send(0, arp()); !errors.Is(err, netport.ErrClosed) {
		t.Errorf("send after close: %v", err)
	}
}

// An interface that is down refuses frames; up again, it takes them.
func TestPort_SurvivesAnInterfaceThatGoesDown(t *testing.T) {
	newTAP(t, "t6", "")
	p, err := Open("t6", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ip(t, "link set t6 down")
	if err := p.Send(0, arp()); !errors.Is(err, syscall.EIO) {
		t.Errorf("send to an interface that is down: %v", err)
	}
	ip(t, "link set t6 up")
	exchange(t, p, 0)
}

// An interface that is removed and made anew is found again.
func TestPort_SurvivesAnInterfaceThatVanishes(t *testing.T) {
	newTAP(t, "t9", "")
	p, err := Open("t9", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	exchange(t, p, 0)
	ip(t, "link del t9")
	b := netport.NewBatch(4, 2048)
	for range 3 {
		if _, err := p.Receive(0, b); err == nil || !strings.Contains(err.Error(), "t9") {
			t.Fatalf("receive from an interface that is gone: %v", err)
		}
	}
	if err := p.Send(0, arp()); err == nil {
		t.Error("an interface that is gone took a frame")
	}
	newTAP(t, "t9", "")
	exchange(t, p, 0)
}

func TestSend_DoesNotAllocate(t *testing.T) {
	newTAP(t, "t7", "")
	p, err := Open("t7", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	f := append(bytes.Repeat([]byte{2}, 12), make([]byte, 60)...)
	if n := testing.AllocsPerRun(100, func() {
		if err := p.Send(0, f); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}

func BenchmarkSend(b *testing.B) {
	newTAP(b, "t8", "")
	p, err := Open("t8", Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	f := append(bytes.Repeat([]byte{2}, 12), make([]byte, 1502)...)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Send(0, f); err != nil {
			b.Fatal(err)
		}
	}
}
