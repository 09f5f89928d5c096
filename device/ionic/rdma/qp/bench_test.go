// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// bencher is the leanest environment: one region, no checks, a link that is
// a call of the peer's Deliver.
type bencher struct {
	q, peer *qp.QP
	mem     []byte
	work    qp.SendWork
	posted  int
	recv    qp.RecvWork
	done    int
	got     int
}

func (e *bencher) FetchSend(w *qp.SendWork) bool {
	if e.posted == 0 {
		return false
	}
	e.posted--
	*w = e.work
	return true
}

func (e *bencher) FetchRecv(r *qp.RecvWork) bool { *r = e.recv; return true }

func (e *bencher) Gather(w *qp.SendWork, off uint64, dst []byte) qp.Status {
	copy(dst, e.mem[off:])
	return qp.OK
}

func (e *bencher) Scatter(sges []qp.SGE, off uint64, src []byte) qp.Status {
	copy(e.mem[off:], src)
	return qp.OK
}

func (e *bencher) RemoteCheck(uint32, uint64, uint64, qp.Access) qp.Status { return qp.OK }

func (e *bencher) RemoteWrite(_ uint32, va uint64, src []byte) qp.Status {
	copy(e.mem[va:], src)
	return qp.OK
}

func (e *bencher) RemoteRead(_ uint32, va uint64, dst []byte) qp.Status {
	copy(dst, e.mem[va:])
	return qp.OK
}

func (e *bencher) RemoteAtomic(uint32, uint64, packet.Op, uint64, uint64) (uint64, qp.Status) {
	return 0, qp.OK
}
func (e *bencher) RemoteInvalidate(uint32) qp.Status { return qp.OK }
func (e *bencher) Local(*qp.SendWork) qp.Status      { return qp.OK }
func (e *bencher) CompleteMSN(_ uint32, st qp.Status, _ bool) {
	if st != qp.OK {
		panic(st)
	}
	e.done++
}
func (e *bencher) CompleteNPG(uint16, qp.Status, bool) { e.done++ }
func (e *bencher) CompleteRecv(*qp.RecvCompletion)     { e.got++ }
func (e *bencher) FlushSend()                          {}
func (e *bencher) FlushRecv()                          {}
func (e *bencher) FlushAgain(bool)                     {}
func (e *bencher) Event(qp.Event)                      {}
func (e *bencher) Wake(time.Time)                      {}
func (e *bencher) Count(qp.Counter, uint64)            {}
func (e *bencher) Address(uint32, int, bool, *packet.Header) (packet.Address, bool) {
	return packet.Address{}, true
}

func (e *bencher) Transmit(_ *packet.Address, p *packet.Packet) qp.Verdict {
	e.peer.Deliver(p)
	return qp.Sent
}

func benchPair(b testing.TB, typ qp.Type) (x, y *bencher) {
	x, y = &bencher{mem: make([]byte, 8<<20)}, &bencher{mem: make([]byte, 8<<20)}
	x.q = qp.New(qp.Config{Number: 2, Type: typ}, x)
	y.q = qp.New(qp.Config{Number: 3, Type: typ}, y)
	x.peer, y.peer = y.q, x.q
	for _, e := range []*bencher{x, y} {
		e.recv = qp.RecvWork{Length: 8 << 20, NumSGE: 1}
		dest := uint32(5) - e.q.Number()
		if err := e.q.Modify(maskInit, &qp.Attr{State: qp.Init, Access: 7}); err != nil {
			b.Fatal(err)
		}
		if err := e.q.Modify(maskRTR, &qp.Attr{State: qp.RTR, PathMTU: 12, DestQPN: dest, MaxDestRead: 4}); err != nil {
			b.Fatal(err)
		}
		if err := e.q.Modify(maskRTS, &qp.Attr{State: qp.RTS, Timeout: 14, RetryCnt: 7, MaxRead: 4}); err != nil {
			b.Fatal(err)
		}
	}
	return x, y
}

// move runs n messages with at most depth posted at a time.
func move(x, y *bencher, n, depth int) {
	for x.done < n {
		if x.posted == 0 {
			x.posted = min(depth, n-x.done)
		}
		for x.done < n {
			now := time.Now()
			more := x.q.Step(now)
			if y.q.Step(now) {
				more = true
			}
			if !more && x.posted == 0 {
				break
			}
		}
	}
}

func BenchmarkPair(b *testing.B) {
	for _, c := range []struct {
		op    qp.Op
		size  int
		depth int
	}{
		{qp.OpSend, 64, 1}, {qp.OpSend, 64, 64}, {qp.OpWrite, 64, 64}, {qp.OpWrite, 4 << 10, 64},
		{qp.OpWrite, 64 << 10, 64}, {qp.OpWrite, 1 << 20, 16},
		{qp.OpRead, 64, 64}, {qp.OpRead, 4 << 10, 64}, {qp.OpRead, 1 << 20, 16}, {qp.OpFetchAdd, 8, 16},
	} {
		b.Run(fmt.Sprintf("%v/%d/depth%d", c.op, c.size, c.depth), func(b *testing.B) {
			x, y := benchPair(b, qp.RC)
			x.work = qp.SendWork{Op: c.op, Length: uint32(c.size), Signaled: true, NumSGE: 1}
			move(x, y, 4*c.depth, c.depth)
			x.done = 0
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			b.ResetTimer()
			move(x, y, b.N, c.depth)
		})
	}
}
