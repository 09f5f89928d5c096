// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/fabric"
)

var benchSizes = []int{64, 4 << 10, 64 << 10, 256 << 10}

// cpu returns the processor time of this process so far. On a busy machine it
// compares better than the time on the clock.
func cpu() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// buffers is a ring of payloads that come back when they are released.
type buffers struct{ free chan *payload }

type payload struct {
	b    []byte
	home *buffers
}

func (p *payload) Release() { p.home.free <- p }

func newBuffers(n, size int) *buffers {
	h := &buffers{free: make(chan *payload, n)}
	for range n {
		h.free <- &payload{b: make([]byte, size), home: h}
	}
	return h
}

// BenchmarkStream sends frames of one flow one way as fast as they go. The
// receiver copies each into a buffer of its own.
func BenchmarkStream(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchStream(b, size, 1) })
	}
}

// BenchmarkStream4 is the same with four flows on four lanes.
func BenchmarkStream4(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchStream(b, size, 4) })
	}
}

func benchStream(b *testing.B, size, flows int) {
	t := newBed(b)
	var got atomic.Int64
	done := make(chan struct{}, 1)
	want := int64(1)
	sinks := make([][]byte, flows)
	for i := range sinks {
		sinks[i] = make([]byte, size)
	}
	receiver := &station{receive: func(f *fabric.Frame) {
		copy(sinks[int(f.Flow)], f.Payload)
		f.Release()
		if got.Add(1) == atomic.LoadInt64(&want) {
			done <- struct{}{}
		}
	}}
	room := make(chan struct{}, 1)
	sender := &station{writable: func(uint32, uint8) { signal(room) }}
	l1 := t.node(1, sender, nil)
	t.node(2, receiver, nil)
	pool := newBuffers(64, size)
	header := make([]byte, 96)
	send := func(i int) {
		p := <-pool.free
		f := fabric.Frame{Dst: 2, Flow: uint32(i % flows), Header: header, Payload: p.b, Owner: p}
		for l1.Send(&f) == fabric.Full {
			<-room
		}
	}
	for i := range flows {
		atomic.StoreInt64(&want, int64(i+1))
		send(i)
		<-done
	}
	got.Store(0)
	atomic.StoreInt64(&want, int64(b.N))
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	for i := range b.N {
		send(i)
	}
	<-done
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
	for _, s := range l1.Stats() {
		if s.Node == 2 {
			b.ReportMetric(float64(s.TxFrames)/float64(s.TxMessages), "frames/msg")
		}
	}
}

// BenchmarkPlainTCP is the reference: the same bytes over a TCP connection, in
// writes of the same size, copied once by the receiver too.
func BenchmarkPlainTCP(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l := listen(b)
			defer l.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				buf, sink := make([]byte, size), make([]byte, size)
				for {
					if _, err := io.ReadFull(c, buf); err != nil {
						return
					}
					copy(sink, buf)
				}
			}()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu()
			for range b.N {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			c.Close()
			<-done
			b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}

// BenchmarkPingPong bounces one frame between two nodes.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range benchSizes[:2] {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			t := newBed(b)
			back := make(chan struct{}, 1)
			var l1, l2 *Link
			body := make([]byte, size)
			header := make([]byte, 96)
			bounce := func(f *fabric.Frame) {
				f.Release()
				l2.Send(&fabric.Frame{Dst: 1, Flow: f.Flow, Header: header, Payload: body})
			}
			l1 = t.node(1, &station{receive: func(f *fabric.Frame) { f.Release(); back <- struct{}{} }}, nil)
			l2 = t.node(2, &station{receive: bounce}, nil)
			l1.Send(&fabric.Frame{Dst: 2, Header: header, Payload: body})
			<-back
			time.Sleep(10 * time.Millisecond)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				l1.Send(&fabric.Frame{Dst: 2, Header: header, Payload: body})
				<-back
			}
		})
	}
}

// BenchmarkPlainTCPPingPong is its reference.
func BenchmarkPlainTCPPingPong(b *testing.B) {
	for _, size := range benchSizes[:2] {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l := listen(b)
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				buf := make([]byte, size)
				for {
					if _, err := io.ReadFull(c, buf); err != nil {
						return
					}
					if _, err := c.Write(buf); err != nil {
						return
					}
				}
			}()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			buf := make([]byte, size)
			b.ResetTimer()
			for range b.N {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
