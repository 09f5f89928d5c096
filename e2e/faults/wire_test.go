// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/e2e/verdict"
)

// quality is what a bad cable does to what it carries, in each direction.
type quality struct {
	delay, jitter time.Duration
	loss          float64 // share of frames
	rate          int     // bits per second
}

// queueLength is how many frames a bad cable holds; more are lost, as in netem.
const queueLength = 1000

// wire is a bad cable: it stands between a host and the switch and does in this process what the kernel's netem would,
// which not every kernel has.
//
//	host eth0 ----- port    [delay, loss]    inner ----- outer -- bridge
type wire struct {
	ends  [2]*os.File // port and inner
	tasks sync.WaitGroup
	once  sync.Once
	stop  chan struct{}
}

// inside runs f in a namespace. A socket stays in the namespace it was made in.
func inside(ns string, f func() error) error {
	done := make(chan error)
	go func() {
		done <- func() error {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, in whatever namespace it is
			file, err := os.Open(filepath.Join("/run/netns", ns))
			if err != nil {
				return err
			}
			defer file.Close()
			if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-done
}

// vnetHeader precedes every frame on the sockets: it says how the kernel may cut the frame and which checksum is still
// missing, so that frames pass as they are.
const vnetHeader = 10

// tap opens a socket for all frames that come in at an interface of the calling thread's namespace.
func tap(name string) (*os.File, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	const all = uint16(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8) // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	for _, option := range []int{unix.PACKET_VNET_HDR, unix.PACKET_IGNORE_OUTGOING} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option, 1); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("packet socket, option %d: %w", option, err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket on %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// degrade puts a bad cable between the host and the switch.
func (h *host) degrade(q quality) {
	t := h.net.t
	t.Helper()
	inner, outer := "i"+h.name, "o"+h.name
	ip(t, "-n", h.net.name, "link", "add", inner, "type", "veth", "peer", "name", outer)
	ip(t, "-n", h.net.name, "link", "set", inner, "up")
	ip(t, "-n", h.net.name, "link", "set", outer, "master", "br0", "up")
	w := &wire{stop: make(chan struct{})}
	err := inside(h.net.name, func() (err error) {
		if w.ends[0], err = tap(h.port); err != nil {
			return err
		}
		w.ends[1], err = tap(inner)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ip(t, "-n", h.net.name, "link", "set", h.port, "nomaster")
	for i := range w.ends {
		frames := make(chan frame, queueLength)
		w.tasks.Go(func() { w.read(t, w.ends[i], q, rand.New(rand.NewPCG(1, uint64(i))), frames) })
		w.tasks.Go(func() { w.write(t, w.ends[1-i], frames) })
	}
	h.wire = w
	t.Cleanup(w.close)
}

// restore puts the good cable back.
func (h *host) restore() {
	t := h.net.t
	t.Helper()
	ip(t, "-n", h.net.name, "link", "set", h.port, "master", "br0")
	h.wire.close()
	h.wire = nil
	ip(t, "-n", h.net.name, "link", "del", "i"+h.name)
}

// close ends what carries frames.
func (w *wire) close() {
	w.once.Do(func() {
		close(w.stop)
		for _, e := range w.ends {
			e.Close()
		}
	})
	w.tasks.Wait()
}

// frame is on its way until a time.
type frame struct {
	due   time.Time
	bytes []byte
}

// read takes in what one end receives and decides what becomes of it.
func (w *wire) read(t *verdict.T, from *os.File, q quality, r *rand.Rand, to chan<- frame) {
	defer close(to)
	buf := make([]byte, vnetHeader+1<<17)
	var busy, last time.Time
	for {
		n, err := from.Read(buf)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("bad cable: %v", err)
			}
			return
		}
		if r.Float64() < q.loss {
			continue
		}
		now := time.Now()
		if busy.Before(now) {
			busy = now
		}
		busy = busy.Add(time.Duration(n-vnetHeader) * 8 * time.Second / time.Duration(q.rate))
		due := busy.Add(q.delay + time.Duration(r.Int64N(int64(q.jitter)+1)))
		if due.Before(last) {
			due = last // no frame overtakes another
		}
		last = due
		select {
		case to <- frame{due, append([]byte(nil), buf[:n]...)}:
		default: // the queue is full
		}
	}
}

// write sends frames when they are due.
func (w *wire) write(t *verdict.T, to *os.File, frames <-chan frame) {
	for f := range frames {
		select {
		case <-time.After(time.Until(f.due)):
		case <-w.stop:
			continue
		}
		// An interface that is down, or has a full queue, loses frames.
		if _, err := to.Write(f.bytes); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, unix.ENETDOWN) && !errors.Is(err, unix.ENOBUFS) {
			t.Errorf("bad cable: %v", err)
		}
	}
}
