// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
)

// tapToCapture is the variable of the environment that makes the test program
// capture on an interface instead of testing.
const tapToCapture = "ERNIC_TEST_CAPTURE"

// captureTo writes each frame of an interface as a line: "in" for one that came out
// of the guest, "out" for one that goes into it, and its bytes. It ends with
// SIGTERM.
func captureTo(w io.Writer, name string) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "packets")
	defer func() { _ = file.Close() }()
	index, err := interfaceIndex(name)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
		return fmt.Errorf("enlarge the buffer of the packet socket: %w", err)
	}
	everything := uint16(unix.ETH_P_ALL)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything<<8 | everything>>8, Ifindex: index}); err != nil {
		return fmt.Errorf("bind a packet socket to %s: %w", name, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Now()) })()
	_, _ = fmt.Fprintln(w, "capturing")
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	b := make([]byte, 1<<17)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := conn.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), b, 0)
			return failed != unix.EAGAIN
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil || failed != nil {
			return fmt.Errorf("capture on %s: %w", name, cmpErr(err, failed))
		}
		way := "in"
		if a, ok := from.(*unix.SockaddrLinklayer); ok && a.Pkttype == unix.PACKET_OUTGOING {
			way = "out"
		}
		_, _ = fmt.Fprintf(w, "%s %x\n", way, b[:n])
	}
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func interfaceIndex(name string) (int, error) {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, r); err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return int(r.Uint32()), nil
}

// frames are those of a direction.
type frames map[string][]string

// hostCapture captures on the TAP of a node until the returned function is called,
// which returns what there was.
func hostCapture(t *testing.T, s *site.Site, n *site.Node) func() frames {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Lab.Start(lab.Program{Name: "capture-" + n.TAP, Path: exe, Env: []string{tapToCapture + "=" + n.TAP}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitLog(t.Context(), "capturing"); err != nil {
		t.Fatal(err)
	}
	return func() frames {
		t.Helper()
		if err := p.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		f := frames{}
		for line := range strings.Lines(p.Log()) {
			if way, bytes, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				f[way] = append(f[way], bytes)
			}
		}
		return f
	}
}

// guestCapture lets tcpdump capture one direction in a guest until the returned
// function is called, which returns the frames.
func guestCapture(t *testing.T, g *guest.Guest, way string) func() []string {
	t.Helper()
	file := "/tmp/" + way + ".pcap"
	c, err := g.Start(t.Context(), shell("exec tcpdump -n -B 16384 -s 0 -U --immediate-mode -i eth0 -Q %s -w %s", way, file))
	if err != nil {
		t.Fatal(err)
	}
	poll(t, g, "yes", "test -s %s && echo yes || echo no", file)
	return func() []string {
		t.Helper()
		// What tcpdump has not read when it is told to end, it does not write.
		must(t, g, "last=; while size=$(stat -c %%s %s); test \"$size\" != \"$last\"; do last=$size; sleep 1; done", file)
		_ = c.Signal(syscall.SIGINT)
		if r, err := c.Wait(); err != nil || !strings.Contains(r.Stderr, "0 packets dropped by kernel") {
			t.Fatalf("tcpdump: %v\n%s", err, r.Stderr)
		}
		b, err := base64.StdEncoding.DecodeString(must(t, g, "base64 -w 0 %s; rm %[1]s", file))
		if err != nil {
			t.Fatal(err)
		}
		f, err := parsePcap(b)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// parsePcap returns the frames of a capture file, in hexadecimal:
//
//	file header    24 bytes
//	record header  seconds u32, fraction u32, captured u32, length u32
//	frame          captured bytes
func parsePcap(b []byte) (f []string, err error) {
	const fileHeader, recordHeader = 24, 16
	if len(b) < fileHeader {
		return nil, fmt.Errorf("a capture of %d bytes has no header", len(b))
	}
	for b = b[fileHeader:]; len(b) > 0; {
		if len(b) < recordHeader {
			return nil, fmt.Errorf("%d bytes are left of a record header", len(b))
		}
		n, length := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
		if n != length || uint64(n) > uint64(len(b)-recordHeader) {
			return nil, fmt.Errorf("%d of %d bytes are captured, %d are left", n, length, len(b)-recordHeader)
		}
		f = append(f, hex.EncodeToString(b[recordHeader:recordHeader+n]))
		b = b[recordHeader+n:]
	}
	return f, nil
}

// What a guest sends is on the TAP bit by bit, in its order, and nothing else is;
// and so it is the other way.
func captures(t *testing.T, s *site.Site) {
	n, peer := s.Nodes[0], s.Nodes[1]
	// What is captured in a guest has gone through its aggregation of packets.
	must(t, n.Guest, "ethtool -K eth0 gro off")
	defer func() { must(t, n.Guest, "ethtool -K eth0 gro on") }()
	host := hostCapture(t, s, n)
	sent, received := guestCapture(t, n.Guest, "out"), guestCapture(t, n.Guest, "in")
	for _, size := range []int{0, 17, 18, 19, 500, 1471, 1472, 1473, 8000} {
		must(t, n.Guest, "ping -q -i 0.02 -c 3 -w 60 -s %d %s", size, peer.IP)
		must(t, peer.Guest, "ping -q -i 0.02 -c 3 -w 60 -s %d %s", size, n.IP)
	}
	must(t, n.Guest, "ping -6 -q -i 0.02 -c 3 -w 30 -s 1400 ff02::1%%eth0; ping -b -q -c 3 -i 0.02 -w 3 192.168.200.255 || true")
	iperf(t, s, "-b 4M")
	got := frames{"in": sent(), "out": received()}
	want := host()
	for _, way := range []string{"in", "out"} {
		mine, theirs := ofFlows(got[way]), ofFlows(want[way])
		if len(theirs) < 100 {
			t.Errorf("only %d frames to compare", len(theirs))
		}
		compareFrames(t, way, mine, theirs)
	}
}

// ofFlows leaves what the test has made: IP, between hosts or to groups. ARP and
// the like may come before the first capture has begun.
func ofFlows(f []string) []string {
	return slices.DeleteFunc(slices.Clone(f), func(s string) bool {
		return len(s) < 28 || s[24:28] != "0800" && s[24:28] != "86dd" || s[24:28] == "86dd" && !strings.Contains(s[:12], "333300000001")
	})
}

func compareFrames(t *testing.T, way string, guest, host []string) {
	t.Helper()
	if slices.Equal(guest, host) {
		return
	}
	// Several queues: flows may overtake each other.
	a, b := slices.Sorted(slices.Values(guest)), slices.Sorted(slices.Values(host))
	if slices.Equal(a, b) {
		return
	}
	only := func(x, y []string) (n int, first string) {
		have := map[string]int{}
		for _, f := range y {
			have[f]++
		}
		for _, f := range x {
			if have[f]--; have[f] < 0 {
				if n++; first == "" {
					first = f
				}
			}
		}
		return n, first
	}
	n, first := only(a, b)
	m, other := only(b, a)
	t.Errorf("%s: the guest has %d frames and the TAP %d; %d are only in the guest, such as %.200s, and %d only on the TAP, such as %.200s",
		way, len(a), len(b), n, first, m, other)
}

func FuzzParsePcap(f *testing.F) {
	f.Add(make([]byte, 24))
	f.Add(append(make([]byte, 24+8), 2, 0, 0, 0, 2, 0, 0, 0, 0xaa, 0xbb))
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := parsePcap(b)
		total := 24
		for _, s := range frames {
			total += 16 + len(s)/2
		}
		if err == nil && total != len(b) {
			t.Fatalf("%d bytes are read as %d", len(b), total)
		}
	})
}
