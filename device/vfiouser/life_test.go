// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/guestmem"
)

// serving runs Serve on a socket of its own until the test ends.
type serving struct {
	t    *testing.T
	path string
	srv  *Server
	stop context.CancelFunc
	done chan error
}

func serve(t *testing.T, dev Device, o Options) *serving {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &serving{t: t, path: path, srv: &Server{Options: o}, stop: cancel, done: make(chan error, 1)}
	go func() { s.done <- s.srv.Serve(ctx, l, dev) }()
	t.Cleanup(func() {
		cancel()
		if err := s.wait(); err != nil {
			t.Errorf("Serve: %v", err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return s
}

func (s *serving) wait() error {
	select {
	case err := <-s.done:
		s.done <- err
		return err
	case <-time.After(patience):
		s.t.Fatal("Serve does not return")
		return nil
	}
}

// dial connects a raw client.
func (s *serving) dial() *rawClient {
	s.t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &rawClient{t: s.t, fd: fd, srv: s.srv}
	s.t.Cleanup(c.close)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: s.path}); err != nil {
		s.t.Fatal(err)
	}
	c.setTimeout()
	return c
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func (d *fakeDevice) counts() (attached, detached int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attached, d.detached
}

func TestClientsComeAndGo(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	s := serve(t, dev, Options{})
	ram := newMemfd(t, 1<<20)
	for i := range 20 {
		c := s.dial()
		c.version()
		c.ok(CmdDMAMap, mapReq(3, 0, 0, 1<<20), ram) // EEXIST if the last one's windows were still there
		c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 1), newEvent(t, unix.EFD_NONBLOCK))
		if err := dev.Session().Mem().WriteAt([]byte{byte(i)}, 5); err != nil {
			t.Fatal(err)
		}
		c.close() // the next client connects while this session is being torn down
	}
	eventually(t, "20 clients gone", func() bool { a, d := dev.counts(); return a == 20 && d == 20 })
	if !errors.Is(dev.reason, ErrClientGone) || len(dev.resets) != 20 {
		t.Fatalf("reason %v, resets %d", dev.reason, len(dev.resets))
	}
	if st := s.srv.Mem().Stats(); st.Windows != 0 || st.Files != 0 {
		t.Fatalf("%+v", st)
	}
	if metric(t, s.srv, "sessions") != 20 || metric(t, s.srv, "clients_refused_busy") != 0 {
		t.Fatal("not counted")
	}
}

func TestSecondClientIsRefusedBusy(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	s := serve(t, dev, Options{})
	first := s.dial()
	first.version()
	for range 5 {
		c := s.dial()
		c.fails(syscall.EBUSY, CmdVersion, enc(u32(0), qemuJSON))
		c.wantEOF()
		c.close()
		first.alive()
	}
	first.close()
	next := s.dial()
	next.version()
	next.alive()
	if metric(t, s.srv, "clients_refused_busy") != 5 {
		t.Fatal("not counted")
	}
}

func TestSilentAndBrokenSecondClientsDoNotDisturbTheFirst(t *testing.T) {
	leakCheck(t)
	s := serve(t, newFake(), Options{HandshakeTimeout: 50 * time.Millisecond})
	first := s.dial()
	first.version()
	silent := s.dial()
	broken := s.dial()
	broken.write(header{id: 1, cmd: 1, size: 3}.bytes(), newMemfd(t, 4096))
	if r := broken.mustRead(); r.errno != u32(syscall.EINVAL) {
		t.Fatalf("%+v", r.header)
	}
	broken.wantEOF()
	gone := s.dial()
	gone.write(message(1, CmdVersion, 0, cut("{}"))[:9])
	gone.close()
	silent.wantEOF()
	first.alive()
}

func TestTakeoverWaitsForTheTeardownOfADeadClient(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	tearing, release := make(chan struct{}), make(chan struct{})
	dev.detach = func(error) {
		if _, d := dev.counts(); d == 1 {
			close(tearing)
			<-release
		}
	}
	s := serve(t, dev, Options{})
	c := s.dial()
	c.version()
	c.close()
	<-tearing
	next := s.dial()
	next.write(message(1, CmdVersion, 0, enc(u32(0), qemuJSON)))
	time.Sleep(20 * time.Millisecond)
	close(release)
	if r := next.mustRead(); r.errno != 0 {
		t.Fatalf("refused: %+v", r.header)
	}
}

func TestTakeoverOfAClientWhoseHangUpNobodyHasNoticedYet(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	busy, release := make(chan struct{}), make(chan struct{})
	dev.write = func(_ int, off uint64, _ []byte) error {
		if off == 0x100 {
			close(busy)
			<-release
		}
		return nil
	}
	s := serve(t, dev, Options{})
	c := s.dial()
	c.version()
	c.post(CmdRegionWrite, writeReq(0, 0x100, 1))
	<-busy
	c.close() // the session is inside a handler and cannot see it
	next := s.dial()
	next.write(message(1, CmdVersion, 0, enc(u32(0), qemuJSON)))
	time.Sleep(20 * time.Millisecond)
	close(release)
	if r := next.mustRead(); r.errno != 0 {
		t.Fatalf("refused: %+v", r.header)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	s := serve(t, dev, Options{})
	c := s.dial()
	c.version()
	c.ok(CmdDMAMap, mapReq(3, 0, 0, 4096), newMemfd(t, 4096))
	idle := s.dial()
	s.stop()
	if err := s.wait(); err != nil {
		t.Fatal(err)
	}
	c.wantEOF()
	idle.wantEOF()
	if a, d := dev.counts(); a != 1 || d != 1 || !errors.Is(dev.reason, context.Canceled) {
		t.Fatalf("attached %d, detached %d, reason %v", a, d, dev.reason)
	}
	if st := s.srv.Mem().Stats(); st.Windows != 0 || st.Files != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestServeReportsAFailedListener(t *testing.T) {
	leakCheck(t)
	l, err := Listen(filepath.Join(t.TempDir(), "s"), ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := async(func() error { return (&Server{}).Serve(context.Background(), l, newFake()) })
	l.Close()
	if err := result(t, done); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("%v", err)
	}
}

func TestServeRefusesABadDevice(t *testing.T) {
	leakCheck(t)
	for name, spoil := range map[string]func(in *Info){
		"BAR that is no power of two":     func(in *Info) { in.Regions[0].Size = 0x3000 },
		"configuration space of 512":      func(in *Info) { in.Regions[RegionConfig].Size = 512 },
		"unknown region flags":            func(in *Info) { in.Regions[0].Flags = 0x10 },
		"mmap of nothing":                 func(in *Info) { in.Regions[3].MMap = &MMap{} },
		"mmap without a file":             func(in *Info) { in.Regions[0].MMap = &MMap{} },
		"mmap area outside the region":    func(in *Info) { in.Regions[0].MMap = &MMap{File: os.Stdin, Areas: []Area{{0x1000, 0x2000}}} },
		"mmap area not page aligned":      func(in *Info) { in.Regions[0].MMap = &MMap{File: os.Stdin, Areas: []Area{{0x800, 0x1000}}} },
		"mmap area that wraps":            func(in *Info) { in.Regions[0].MMap = &MMap{File: os.Stdin, Areas: []Area{{1<<64 - 0x1000, 0x2000}}} },
		"mmap of too many areas":          func(in *Info) { in.Regions[0].MMap = &MMap{File: os.Stdin, Areas: make([]Area, 65)} },
		"mmap of a region below one page": func(in *Info) { in.Regions[0] = RegionInfo{Size: 64, MMap: &MMap{File: os.Stdin}} },
		"2049 MSI-X vectors":              func(in *Info) { in.IRQs[IRQMSIX].Count = 2049 },
		"negative interrupts":             func(in *Info) { in.IRQs[IRQMSI].Count = -1 },
		"NORESIZE":                        func(in *Info) { in.IRQs[IRQMSI].Flags = 8 },
	} {
		t.Run(name, func(t *testing.T) {
			dev := newFake()
			spoil(&dev.info)
			l, err := Listen(filepath.Join(t.TempDir(), "s"), ListenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := (&Server{}).Serve(context.Background(), l, dev); err == nil || !strings.Contains(err.Error(), "vfio-user device") {
				t.Fatalf("%v", err)
			}
			conn, fd := pair(t)
			defer unix.Close(fd)
			if err := (&Server{}).ServeConn(context.Background(), conn, dev); err == nil {
				t.Fatal("ServeConn took it")
			}
		})
	}
	dev := struct{ Device }{newFake()} // hides Reset
	if err := (&Server{}).ServeConn(context.Background(), func() *net.UnixConn {
		conn, fd := pair(t)
		t.Cleanup(func() { unix.Close(fd) })
		return conn
	}(), dev); err == nil || !strings.Contains(err.Error(), "Reset") {
		t.Fatalf("resettable without Reset: %v", err)
	}
}

// TestDisconnectAtEveryByte cuts a session with descriptors at every byte.
func TestDisconnectAtEveryByte(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	s := serve(t, dev, Options{})
	ram := newMemfd(t, 1<<20)
	events := make([]int, 16)
	for i := range events {
		events[i] = newEvent(t, unix.EFD_NONBLOCK)
	}
	type piece struct {
		b   []byte
		fds []int
	}
	session := []piece{
		{message(0, CmdVersion, 0, enc(u32(0), qemuJSON)), nil},
		{message(1, CmdDMAMap, 0, mapReq(3, 0, 0, 1<<19)), []int{ram}},
		{message(2, CmdDMAMap, flagNoReply, mapReq(3, 0, 1<<20, 4096)), nil},
		{message(3, CmdSetIRQs, 0, irqReq(0x24, IRQMSIX, 2, 16)), events},
		{message(4, CmdRegionWrite, flagNoReply, writeReq(0, 0, 1, 2, 3, 4, 5, 6, 7, 8)), nil},
		{message(5, CmdRegionRead, 0, readReq(RegionConfig, 0, 4096)), nil},
		{message(6, CmdDMAUnmap, 0, unmapReq(0, 1<<20, 4096)), nil},
		{message(7, CmdReset, 0, nil), nil},
		{message(8, CmdRegionWriteMulti, 0, multiReq(1, multiEntry(0, 0, 8, 0))), nil},
		{message(9, CmdRegionWrite, 0, writeReq(0, 0, 1)), []int{ram, ram}},
	}
	total := 0
	for _, p := range session {
		total += len(p.b)
	}
	before := len(openFDs(t))
	for at := range total {
		c := s.dial()
		left := at
		for _, p := range session {
			if left <= 0 {
				break
			}
			n := min(left, len(p.b))
			c.write(p.b[:n], p.fds...)
			left -= n
		}
		if at%3 == 0 { // some hang up only one direction
			if err := unix.Shutdown(c.fd, unix.SHUT_WR); err != nil {
				t.Fatal(err)
			}
			for {
				if _, err := c.read(); err != nil {
					break
				}
			}
		}
		c.close()
	}
	c := s.dial() // waits for the last teardown
	c.version()
	if st := s.srv.Mem().Stats(); st.Windows != 0 || st.Files != 0 {
		t.Fatalf("%+v", st)
	}
	c.close()
	eventually(t, "all descriptors closed", func() bool { return len(openFDs(t)) <= before })
	eventually(t, "all sessions detached", func() bool { a, d := dev.counts(); return a == d && a > total/2 })
}

func TestManyQuickConnections(t *testing.T) {
	leakCheck(t)
	s := serve(t, newFake(), Options{HandshakeTimeout: 200 * time.Millisecond})
	for range 500 {
		s.dial().close()
	}
	var held []*rawClient // more silent clients than may wait
	for range maxWaiting + 40 {
		held = append(held, s.dial())
	}
	for _, c := range held {
		c.close()
	}
	eventually(t, "a client is served again", func() bool {
		c := s.dial()
		defer c.close()
		if c.tryWrite(message(1, CmdVersion, 0, enc(u32(0), qemuJSON))) != nil {
			return false
		}
		r, err := c.read()
		return err == nil && r.errno == 0
	})
}

func TestSilentClientsAreBounded(t *testing.T) {
	leakCheck(t)
	s := serve(t, newFake(), Options{HandshakeTimeout: 10 * patience})
	first := s.dial()
	first.version()
	for range maxWaiting {
		s.dial()
	}
	s.dial().wantEOF() // one too many is closed unheard, long before its handshake times out
	first.alive()
}

func TestAcceptSurvivesRunningOutOfDescriptors(t *testing.T) {
	leakCheck(t)
	s := serve(t, newFake(), Options{})
	c := s.dial()
	c.version()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	late := &rawClient{t: t, fd: fd, srv: s.srv}
	defer late.close()
	late.setTimeout()
	highest := func() u64 {
		d, err := unix.Dup(0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(d)
		return u64(d)
	}()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: highest, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	connectErr := unix.Connect(fd, &unix.SockaddrUnix{Name: s.path})
	for end := time.Now().Add(patience); s.srv.counters.acceptErrors.Load() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if connectErr != nil || metric(t, s.srv, "accept_errors") == 0 {
		t.Fatalf("connect %v, accept errors %d", connectErr, metric(t, s.srv, "accept_errors"))
	}
	late.fails(syscall.EBUSY, CmdVersion, enc(u32(0), qemuJSON))
	c.alive()
}

func TestOnlyListedUsersMayConnect(t *testing.T) {
	leakCheck(t)
	me := u32(os.Getuid())
	for name, q := range map[string]struct {
		uids []uint32
		ok   bool
	}{"listed": {[]uint32{me + 1, me}, true}, "not listed": {[]uint32{me + 1}, false}} {
		t.Run(name, func(t *testing.T) {
			c := start(t, newFake(), Options{AllowUIDs: q.uids})
			if q.ok {
				c.version()
				c.alive()
				return
			}
			c.wantEOF()
			if err := c.wait(); err == nil || !strings.Contains(err.Error(), "not allowed") {
				t.Fatalf("%v", err)
			}
			if metric(t, c.srv, "clients_refused_uid") != 1 {
				t.Fatal("not counted")
			}
		})
	}
}

func TestServerUsesTheGivenMemory(t *testing.T) {
	leakCheck(t)
	mem := guestmem.New(guestmem.Options{})
	dev := newFake()
	c := attached(t, dev, Options{Mem: mem})
	c.ok(CmdDMAMap, mapReq(3, 0, 0, 4096), newMemfd(t, 4096))
	if dev.Session().Mem() != mem || len(mem.Windows()) != 1 {
		t.Fatal("another memory is in use")
	}
}

func TestMetricsHaveStableUniqueNames(t *testing.T) {
	leakCheck(t)
	var s Server
	var names []string
	for _, m := range s.Metrics() {
		if m.Name != strings.ToLower(m.Name) || slices.Contains(names, m.Name) {
			t.Errorf("bad or duplicate name %q", m.Name)
		}
		names = append(names, m.Name)
	}
	again := s.Metrics()
	for i := range again {
		if again[i].Name != names[i] {
			t.Fatalf("order changes at %d", i)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		CmdDMAMap.String():         "DMA_MAP",
		Command(14).String():       "COMMAND_14",
		Command(999).String():      "COMMAND_999",
		ResetCommand.String():      "reset command",
		ResetLostClient.String():   "lost client",
		ResetKind(7).String():      "reset kind 7",
		CmdMigDataWrite.String():   "MIG_DATA_WRITE",
		CmdGetRegionIOFDs.String(): "REGION_IO_FDS",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
