// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/labtest"
)

// TestGuests boots two guests that share a plain cable, once for all that needs
// no other machine.
func TestGuests(t *testing.T) {
	l := labtest.New(t, lab.Options{Name: "self"})
	a, b := l.Link("cable")
	start := time.Now()
	guests := labtest.Boot(t, l,
		guest.Config{Name: "self1", Links: []guest.Link{a}},
		guest.Config{Name: "self2", Links: []guest.Link{b}})
	t.Logf("two guests booted in %.1f s under %s", time.Since(start).Seconds(), l.Accel)
	for _, g := range guests {
		t.Logf("%s: the agent was ready %.1f s after its kernel's start", g.Name(), g.Agent().Info.Uptime)
		if got := g.Agent().Info; got.CPUs != 4 || got.Kernel != l.Artifacts.Versions["kernel"] {
			t.Errorf("%s: %d processors, kernel %s; want 4, %s", g.Name(), got.CPUs, got.Kernel, l.Artifacts.Versions["kernel"])
		}
	}
	g := guests[0]
	t.Run("HasToolsAndModules", func(t *testing.T) { hasToolsAndModules(t, g) })
	t.Run("HasBothProviders", func(t *testing.T) { hasBothProviders(t, g) })
	t.Run("IsPreparedForRDMA", func(t *testing.T) { isPrepared(t, g) })
	t.Run("ClockKeepsTime", func(t *testing.T) { clockKeepsTime(t, g) })
	t.Run("CommandsReportHowTheyEnded", func(t *testing.T) { commandsReport(t, g) })
	t.Run("CommandsRunAtTheSameTime", func(t *testing.T) { commandsConcurrent(t, guests) })
	t.Run("CancelledCommandsAreKilled", func(t *testing.T) { commandsCancelled(t, g) })
	t.Run("FilesArriveWhole", func(t *testing.T) { filesArrive(t, g) })
	t.Run("DaemonsDoNotHoldTheirStarter", func(t *testing.T) { daemons(t, g) })
	t.Run("QMPAnswersAndRefuses", func(t *testing.T) { qmp(t, g) })
	t.Run("SoftRoCERunsOverTheCable", func(t *testing.T) { softRoCE(t, guests) })
	t.Run("ShutdownIsOrderly", func(t *testing.T) { shutdown(t, guests[0]) })
	t.Run("KillIsSudden", func(t *testing.T) { kill(t, guests[1]) })
}

func hasToolsAndModules(t *testing.T, g *guest.Guest) {
	for tool := range strings.FieldsSeq(`ibv_devinfo ibv_devices ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong
		rping ucmatose udaddy ibstat perfquery ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat
		ib_atomic_bw qperf ethtool iperf3 ip rdma devlink ss ping arping lspci nvme fio tcpdump sshd dnsmasq udhcpc
		modprobe python3 strace nft`) {
		if _, err := g.Run(t.Context(), guest.Shell("command -v "+tool)); err != nil {
			t.Errorf("no %s: %v", tool, err)
		}
	}
	for module := range strings.FieldsSeq(`ionic ionic_rdma ib_uverbs rdma_ucm rdma_rxe virtio_net
		nvme-rdma nvmet nvmet-rdma ib_umad bonding 8021q`) {
		if _, err := g.Run(t.Context(), guest.Shell("modinfo -F filename "+module)); err != nil {
			t.Errorf("no module %s: %v", module, err)
		}
	}
	// The module was built against this kernel, so it loads without a device.
	labtest.Run(t, g, "modprobe ionic_rdma && grep -q '^ionic_rdma ' /proc/modules && rmmod ionic_rdma ionic")
	labtest.Run(t, g, `python3 -c "import pyverbs.device, pyverbs.qp" && test -e `+guest.RDMACoreTests+"/base.py")
}

// hasBothProviders shows with a Soft-RoCE device, which makes libibverbs load
// all providers, which libionic is loaded, and first.
func hasBothProviders(t *testing.T, g *guest.Guest) {
	labtest.Run(t, g, "modprobe rdma_rxe && modprobe dummy && ip link add dum0 type dummy && ip link set dum0 up && rdma link add rxedum type rxe netdev dum0")
	defer labtest.Run(t, g, "rdma link delete rxedum && ip link delete dum0")
	for name, c := range map[string]struct{ env, want string }{
		"stock":   {"UNUSED=1", "/usr/lib/x86_64-linux-gnu/libibverbs/libionic-rdmav"},
		"patched": {guest.PatchedProvider, "/opt/ernic/lib/libionic-rdmav"},
	} {
		r, err := g.Run(t.Context(), guest.Shell(`LD_DEBUG=files ibv_devices 2>&1 | sed -n 's/.*calling init: \(.*libionic-rdmav.*\)/\1/p' | head -n 1`).With(c.env))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(r.Output(), c.want) {
			t.Errorf("%s provider: libibverbs loads %q first, want %s*", name, r.Output(), c.want)
		}
	}
}

func isPrepared(t *testing.T, g *guest.Guest) {
	for what, c := range map[string]struct{ script, want string }{
		"locked memory": {"ulimit -l", "unlimited"},
		"loopback":      {"ip -br link show lo | cut -d' ' -f1; ping -c 1 -q 127.0.0.1 >/dev/null && echo reachable", "lo\nreachable"},
		"host name":     {"hostname", g.Name()},
		"root disk":     {"touch /written && echo writable", "writable"},
		"PCI tree":      {"lspci -n | wc -l | xargs test 3 -le && echo seen", "seen"},
	} {
		if got := labtest.Run(t, g, c.script); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if log := g.QEMULog(); log != "" {
		t.Errorf("QEMU complains: %s", log)
	}
}

// clockKeepsTime shows that the guest's kernel, which measures its clock while
// other processes hold the processor, got it right: all timeouts depend on it.
func clockKeepsTime(t *testing.T, g *guest.Guest) {
	read := func() (guestTime float64, before, after time.Time) {
		before = time.Now()
		out := labtest.Run(t, g, "cut -d' ' -f1 /proc/uptime")
		after = time.Now()
		if _, err := fmt.Sscan(out, &guestTime); err != nil {
			t.Fatal(err)
		}
		return guestTime, before, after
	}
	t0, before0, after0 := read()
	time.Sleep(3 * time.Second)
	t1, before1, after1 := read()
	least, most := before1.Sub(after0).Seconds()*0.98-0.02, after1.Sub(before0).Seconds()*1.02+0.02
	if d := t1 - t0; d < least || d > most {
		t.Errorf("%.2f s of the guest's clock are %.2f to %.2f s here", d, least, most)
	}
}

func commandsReport(t *testing.T, g *guest.Guest) {
	ctx := t.Context()
	r, err := g.Run(ctx, guest.Shell("echo out; echo err >&2; exit 7"))
	var x *guest.ExitError
	if !errors.As(err, &x) || x.Code != 7 || r.Stdout != "out\n" || r.Stderr != "err\n" {
		t.Errorf("exit 7: %+v, %v", r, err)
	}
	if r, err = g.Run(ctx, guest.Shell("kill -KILL $$")); !errors.As(err, &x) || r.Signal != syscall.SIGKILL {
		t.Errorf("kill -KILL: %+v, %v", r, err)
	}
	if _, err = g.Run(ctx, guest.Cmd{Argv: []string{"no-such-program"}}); err == nil || errors.As(err, &x) || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("a missing program: %v", err)
	}
	r, err = g.Run(ctx, guest.Cmd{Argv: []string{"sh", "-c", `cat; echo "$COLOUR $PWD"`}, Env: []string{"COLOUR=blue"}, Dir: "/usr/bin", Stdin: strings.NewReader("in\n")})
	if err != nil || r.Stdout != "in\nblue /usr/bin\n" {
		t.Errorf("input, environment, directory: %q, %v", r.Stdout, err)
	}
	r, err = g.Run(ctx, guest.Shell("exec head -c 3000000 /dev/zero"))
	if err != nil || len(r.Stdout) != 3_000_000 {
		t.Errorf("3,000,000 bytes of output: %d came, %v", len(r.Stdout), err)
	}
}

func commandsConcurrent(t *testing.T, guests []*guest.Guest) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	// Each command waits for a file that the next one makes: only a guest that
	// runs all of them at once gets to the end.
	const n = 8
	var wg sync.WaitGroup
	for _, g := range guests {
		for i := range n {
			wg.Go(func() {
				script := fmt.Sprintf("touch /tmp/c%d; while [ ! -e /tmp/c%d ]; do sleep 0.05; done; echo %d", i, (i+1)%n, i)
				if r, err := g.Run(ctx, guest.Shell(script)); err != nil || r.Output() != fmt.Sprint(i) {
					t.Errorf("%s, command %d: %q, %v", g.Name(), i, r.Output(), err)
				}
			})
		}
	}
	wg.Wait()
}

func commandsCancelled(t *testing.T, g *guest.Guest) {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := g.Start(ctx, guest.Shell("sleep 4711 & echo started; wait"))
	if err != nil {
		t.Fatal(err)
	}
	for c.Output() == "" {
		select {
		case <-c.Done():
			t.Fatal("it ended by itself")
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if r, err := c.Wait(); err == nil || r.Signal != syscall.SIGKILL {
		t.Errorf("the cancelled command: %+v, %v", r, err)
	}
	if got := labtest.Run(t, g, "pgrep -x sleep -a | grep -c 4711 || true"); got != "0" {
		t.Errorf("%s processes of the cancelled command are left", got)
	}
}

func filesArrive(t *testing.T, g *guest.Guest) {
	data := make([]byte, 1_500_000)
	rand.Read(data)
	if err := g.Upload(t.Context(), "/srv/some/where/data", 0o750, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	want := hex.EncodeToString(sum[:]) + " 750"
	if got := labtest.Run(t, g, "echo $(sha256sum /srv/some/where/data | cut -d' ' -f1) $(stat -c %a /srv/some/where/data)"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := g.Upload(t.Context(), "/proc/nowhere/data", 0o600, bytes.NewReader(data)); err == nil {
		t.Error("an upload to an impossible place succeeded")
	}
}

func daemons(t *testing.T, g *guest.Guest) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := g.Run(ctx, guest.Shell("setsid sleep 600 & echo $!"))
	if err != nil {
		t.Fatalf("the starter of a daemon does not end: %v", err)
	}
	labtest.Run(t, g, "kill "+r.Output())
	// The orphan is buried by process 1.
	labtest.Run(t, g, "for i in $(seq 600); do [ -e /proc/"+r.Output()+" ] || exit 0; sleep 0.1; done; exit 1")
}

func qmp(t *testing.T, g *guest.Guest) {
	q, err := g.QMP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := q.Execute(t.Context(), "query-status", nil)
	var status struct{ Running bool }
	if err == nil {
		err = json.Unmarshal(b, &status)
	}
	if err != nil || !status.Running {
		t.Errorf("query-status: %s, %v", b, err)
	}
	var refusal *guest.QMPError
	if _, err := q.Execute(t.Context(), "device_del", map[string]any{"id": "nobody"}); !errors.As(err, &refusal) || refusal.Class != "DeviceNotFound" {
		t.Errorf("device_del of nothing: %v", err)
	}
}

func softRoCE(t *testing.T, guests []*guest.Guest) {
	for i, g := range guests {
		labtest.Run(t, g, fmt.Sprintf(`modprobe virtio_net; modprobe rdma_rxe; modprobe ib_uverbs
ip addr add 10.9.8.%d/24 dev eth0; ip link set eth0 up; rdma link add rxe0 type rxe netdev eth0`, i+1))
	}
	labtest.Run(t, guests[0], "ping -c 1 -w 60 -q 10.9.8.2")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server, err := guests[1].Start(ctx, guest.Shell("ibv_rc_pingpong -d rxe0 -g 1 -n 20 -c"))
	if err != nil {
		t.Fatal(err)
	}
	labtest.Run(t, guests[1], "for i in $(seq 600); do ss -Hltn 'sport = :18515' | grep -q . && exit 0; sleep 0.1; done; exit 1")
	r, err := guests[0].Run(ctx, guest.Shell("ibv_rc_pingpong -d rxe0 -g 1 -n 20 -c 10.9.8.2"))
	if err != nil {
		t.Errorf("client: %v", err)
	}
	if _, err := server.Wait(); err != nil {
		t.Errorf("server: %v", err)
	}
	t.Log(lastLine(r.Output()))
}

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

func shutdown(t *testing.T, g *guest.Guest) {
	start := time.Now()
	if err := g.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("off after %.1f s", time.Since(start).Seconds())
	if _, err := g.Run(t.Context(), guest.Shell("true")); !errors.Is(err, guest.ErrGone) {
		t.Errorf("a command in a guest that is off: %v, want %v", err, guest.ErrGone)
	}
	if err := g.Shutdown(t.Context()); err != nil {
		t.Errorf("the second shutdown: %v", err)
	}
}

func kill(t *testing.T, g *guest.Guest) {
	c, err := g.Start(t.Context(), guest.Shell("sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	g.Kill()
	if _, err := c.Wait(); !errors.Is(err, guest.ErrGone) {
		t.Errorf("the command of a killed guest: %v, want %v", err, guest.ErrGone)
	}
	if err := syscall.Kill(g.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("QEMU's process: %v", err)
	}
}

func TestGuestThatCannotBootSaysWhy(t *testing.T) {
	l := labtest.New(t, lab.Options{Name: "bad"})
	for name, c := range map[string]struct {
		cfg  guest.Config
		want string
	}{
		"no worker":     {guest.Config{Name: "g", Devices: []guest.Device{{Socket: l.Socket("nobody")}}}, "nobody.sock"},
		"bad argument":  {guest.Config{Name: "g", QEMUArgs: []string{"-no-such-option"}}, "no-such-option"},
		"missing root":  {guest.Config{Name: "g", VCPUs: 1, Append: "ernic.root=/dev/vdz"}, "/dev/vdz"},
		"name":          {guest.Config{Name: "Not A Name"}, "Not A Name"},
		"long socket":   {guest.Config{Name: "g", Links: []guest.Link{{Socket: "/" + strings.Repeat("x", 107)}}}, "107"},
		"no such accel": {guest.Config{Name: "g", Accel: "magic"}, "magic"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l.Boot(t.Context(), c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
}
