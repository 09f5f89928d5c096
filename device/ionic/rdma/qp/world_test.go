// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// region is registered memory of a test node. The bytes around it are
// canaries: nothing may write there.
type region struct {
	va          uint64
	buf         []byte
	localWrite  bool
	remote      qp.Access
	invalidated bool
}

func (r *region) slice(va, n uint64) []byte {
	if r == nil || r.invalidated || n > uint64(len(r.buf)) || va < r.va || va-r.va > uint64(len(r.buf))-n {
		return nil
	}
	return r.buf[va-r.va:][:n:n]
}

// node is one guest with one QP: the twin of the device around the core.
type node struct {
	w       *world
	name    string
	q       *qp.QP
	num     uint32
	gid     [16]byte
	sq      []qp.SendWork
	sqNext  int
	rq      []qp.RecvWork
	rqNext  int
	keys    map[uint32]*region
	count   [qp.NumCounters]uint64
	full    bool // its link accepts nothing
	lost    bool // nobody answers
	wake    time.Time
	quiet   bool // no trace
	onCQE   func(kind string, id uint64, st qp.Status)
	onRecv  func(c *qp.RecvCompletion)
	onEvent func(e qp.Event)
	steps   int
}

// world is a set of nodes, a link that holds packets until it is told to
// deliver them, and a clock.
type world struct {
	now   time.Time
	nodes []*node
	wire  []*packet.Packet // in flight, oldest first
	trace strings.Builder
	live  int // packets handed to the link and not released
}

var start = time.Unix(1_000_000, 0)

func newWorld() *world { return &world{now: start} }

func (w *world) logf(format string, args ...any) { fmt.Fprintf(&w.trace, format+"\n", args...) }

func (w *world) take() string {
	s := w.trace.String()
	w.trace.Reset()
	return s
}

func (w *world) add(name string, typ qp.Type, num uint32) *node {
	n := &node{w: w, name: name, num: num, keys: map[uint32]*region{}}
	copy(n.gid[:], name)
	n.q = qp.New(qp.Config{Number: num, Type: typ}, n)
	w.nodes = append(w.nodes, n)
	return n
}

func (w *world) node(name string) *node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

func (w *world) byGID(gid [16]byte) *node {
	for _, n := range w.nodes {
		if n.gid == gid {
			return n
		}
	}
	return nil
}

// payload is packet memory that knows when it is given back.
type payload struct{ w *world }

func (p payload) Release() { p.w.live-- }

// copyPacket makes what arrives at the peer: header decoded from its bytes,
// payload in memory of the link.
func (w *world) copyPacket(p *packet.Packet) *packet.Packet {
	w.live++
	c := packet.Wrap(append([]byte(nil), p.Payload...), payload{w})
	if err := c.Decode(p.Encode()); err != nil {
		panic(err)
	}
	return c
}

// deliver hands the i-th packet in flight to its destination.
func (w *world) deliver(i int) {
	p := w.wire[i]
	w.wire = append(w.wire[:i:i], w.wire[i+1:]...)
	if n := w.byGID(p.DstGID); n != nil && n.num == p.DstQPN {
		n.q.Deliver(p)
		return
	}
	p.Release()
}

func (w *world) drop(i int) {
	p := w.wire[i]
	w.wire = append(w.wire[:i:i], w.wire[i+1:]...)
	p.Release()
}

// settle delivers and steps until nothing moves at the present time.
func (w *world) settle() {
	for range 100_000 {
		busy := false
		for len(w.wire) > 0 {
			w.deliver(0)
		}
		for _, n := range w.nodes {
			for n.step() {
				busy = true
			}
		}
		if !busy && len(w.wire) == 0 {
			return
		}
	}
	panic("the world does not settle")
}

// advance moves the clock to t, stopping at each wake-up on the way.
func (w *world) advance(d time.Duration) {
	end := w.now.Add(d)
	for {
		next := end
		for _, n := range w.nodes {
			if !n.wake.IsZero() && n.wake.Before(next) {
				next = n.wake
			}
		}
		if next.After(w.now) {
			w.now = next
		}
		for _, n := range w.nodes {
			if !n.wake.IsZero() && !n.wake.After(w.now) {
				n.wake = time.Time{}
			}
		}
		w.settle()
		if !w.now.Before(end) {
			return
		}
	}
}

func (n *node) step() bool {
	n.steps++
	return n.q.Step(n.w.now)
}

func (n *node) logf(format string, args ...any) {
	if !n.quiet {
		n.w.logf(n.name+": "+format, args...)
	}
}

// register makes memory of size bytes known under key, with all rights.
func (n *node) register(key uint32, va uint64, size int) *region {
	r := &region{va: va, buf: make([]byte, size), localWrite: true,
		remote: qp.RemoteRead | qp.RemoteWrite | qp.RemoteAtomic}
	n.keys[key] = r
	return r
}

func (n *node) FetchSend(w *qp.SendWork) bool {
	if n.sqNext == len(n.sq) {
		return false
	}
	*w = n.sq[n.sqNext]
	w.Index = uint16(n.sqNext)
	n.sqNext++
	return true
}

func (n *node) FetchRecv(r *qp.RecvWork) bool {
	if n.rqNext == len(n.rq) {
		return false
	}
	*r = n.rq[n.rqNext]
	n.rqNext++
	return true
}

// walk calls f for each piece of the list that [off, off+n) touches, after
// all of them have been checked.
func (n *node) walk(sges []qp.SGE, off uint64, size int, write bool, f func(mem []byte)) qp.Status {
	for pass := range 2 {
		skip, rest := off, uint64(size)
		for _, s := range sges {
			if rest == 0 {
				break
			}
			if skip >= uint64(s.Len) {
				skip -= uint64(s.Len)
				continue
			}
			k := min(uint64(s.Len)-skip, rest)
			r := n.keys[s.Key]
			mem := r.slice(s.VA+skip, k)
			if mem == nil || write && !r.localWrite {
				return qp.LocalProtErr
			}
			if pass == 1 {
				f(mem)
			}
			skip = 0
			rest -= k
		}
		if rest > 0 {
			return qp.LocalProtErr
		}
	}
	return qp.OK
}

func (n *node) Gather(w *qp.SendWork, off uint64, dst []byte) qp.Status {
	return n.walk(w.SGE[:w.NumSGE], off, len(dst), false, func(mem []byte) { dst = dst[copy(dst, mem):] })
}

func (n *node) Scatter(sges []qp.SGE, off uint64, src []byte) qp.Status {
	return n.walk(sges, off, len(src), true, func(mem []byte) { src = src[copy(mem, src):] })
}

func (n *node) reach(rkey uint32, va, size uint64, need qp.Access) []byte {
	r := n.keys[rkey]
	if r == nil || r.remote&need != need {
		return nil
	}
	return r.slice(va, size)
}

func (n *node) RemoteCheck(rkey uint32, va, size uint64, need qp.Access) qp.Status {
	if n.reach(rkey, va, size, need) == nil {
		return qp.RemoteAccErr
	}
	return qp.OK
}

func (n *node) RemoteWrite(rkey uint32, va uint64, src []byte) qp.Status {
	mem := n.reach(rkey, va, uint64(len(src)), qp.RemoteWrite)
	if mem == nil {
		return qp.RemoteAccErr
	}
	copy(mem, src)
	return qp.OK
}

func (n *node) RemoteRead(rkey uint32, va uint64, dst []byte) qp.Status {
	mem := n.reach(rkey, va, uint64(len(dst)), qp.RemoteRead)
	if mem == nil {
		return qp.RemoteAccErr
	}
	copy(dst, mem)
	return qp.OK
}

func (n *node) RemoteAtomic(rkey uint32, va uint64, op packet.Op, operand, compare uint64) (uint64, qp.Status) {
	mem := n.reach(rkey, va, 8, qp.RemoteAtomic)
	if mem == nil {
		return 0, qp.RemoteAccErr
	}
	old := binary.LittleEndian.Uint64(mem)
	switch {
	case op == packet.FetchAdd:
		binary.LittleEndian.PutUint64(mem, old+operand)
	case old == compare:
		binary.LittleEndian.PutUint64(mem, operand)
	}
	return old, qp.OK
}

func (n *node) RemoteInvalidate(rkey uint32) qp.Status {
	r := n.keys[rkey]
	if r == nil || r.invalidated {
		return qp.RemoteAccErr
	}
	r.invalidated = true
	n.logf("remote-invalidate key=%d", rkey)
	return qp.OK
}

func (n *node) Local(w *qp.SendWork) qp.Status {
	r := n.keys[w.Local.Key]
	n.logf("local %v key=%d", w.Op, w.Local.Key)
	switch {
	case r == nil, w.Op == qp.OpRegMR && !r.invalidated, w.Op == qp.OpLocalInv && r.invalidated:
		return qp.MemMgmtErr
	}
	r.invalidated = w.Op == qp.OpLocalInv
	return qp.OK
}

func (n *node) CompleteMSN(msn uint32, st qp.Status, signaled bool) {
	n.logf("cqe msn=%d %v%s", msn, st, unsignaled(signaled))
	if n.onCQE != nil {
		n.onCQE("msn", uint64(msn), st)
	}
}

func (n *node) CompleteNPG(index uint16, st qp.Status, signaled bool) {
	n.logf("cqe npg=%d %v%s", index, st, unsignaled(signaled))
	if n.onCQE != nil {
		n.onCQE("npg", uint64(index), st)
	}
}

func unsignaled(signaled bool) string {
	if signaled {
		return ""
	}
	return " unsignaled"
}

func (n *node) CompleteRecv(c *qp.RecvCompletion) {
	if c.Status != qp.OK {
		n.logf("recv id=%d %v", c.ID, c.Status)
	} else {
		sol, path := "", ""
		if c.Solicited {
			sol = " solicited"
		}
		if c.Path != 0 || c.SrcMAC != [6]byte{} {
			path = fmt.Sprintf(" mac=%x path=%v vlan=%d", c.SrcMAC, c.Path, c.VLAN)
		}
		n.logf("recv id=%d OK %v len=%d src=%d imm=%x%s%s", c.ID, c.Op, c.Length, c.SrcQPN, c.Imm, sol, path)
	}
	if n.onRecv != nil {
		n.onRecv(c)
	}
}

func (n *node) FlushSend() {
	n.logf("flush send")
	if n.onCQE != nil {
		n.onCQE("flush", 0, qp.Flushed)
	}
}

// FlushAgain has nobody to tell: the tests post to no queue that is flushed.
func (n *node) FlushAgain(bool) {}

func (n *node) FlushRecv() {
	n.logf("flush recv")
	if n.onRecv != nil {
		n.onRecv(&qp.RecvCompletion{Status: qp.Flushed})
	}
}

func (n *node) Event(e qp.Event) {
	n.logf("event %v", e)
	if n.onEvent != nil {
		n.onEvent(e)
	}
}

// Address takes the AH number for the index of the destination node.
func (n *node) Address(ah uint32, size int, imm bool, h *packet.Header) (packet.Address, bool) {
	if int(ah) >= len(n.w.nodes) {
		return packet.Address{}, false
	}
	dst := n.w.nodes[ah]
	h.SrcGID, h.DstGID = n.gid, dst.gid
	h.SrcMAC = [6]byte{2, 0, 0, 0, 0, n.name[0]}
	h.GRH = grh(n.name)
	h.Path = packet.PathIPv4
	return packet.Address{GID: dst.gid}, true
}

func grh(name string) (b [40]byte) {
	for i := range b {
		b[i] = name[0]
	}
	return b
}

func (n *node) Transmit(dst *packet.Address, p *packet.Packet) qp.Verdict {
	switch {
	case n.full:
		n.logf("link full")
		return qp.Full
	case n.lost || n.w.byGID(dst.GID) == nil:
		n.logf("link lost %s", describe(p))
		p.Release()
		return qp.Lost
	}
	n.logf("> %s", describe(p))
	n.w.wire = append(n.w.wire, n.w.copyPacket(p))
	p.Release()
	return qp.Sent
}

func describe(p *packet.Packet) string {
	s := fmt.Sprintf("%v psn=%d", p.Op, p.PSN)
	if p.Count != 1 {
		s += fmt.Sprintf("+%d", p.Count)
	}
	if p.Op == packet.Ack {
		return s + fmt.Sprintf(" %v msn=%d", p.Syndrome, p.MSN)
	}
	if len(p.Payload) > 0 {
		s += fmt.Sprintf(" bytes=%d", len(p.Payload))
	}
	if p.Op == packet.ReadRequest {
		s += fmt.Sprintf(" len=%d", p.Length)
	}
	return s + " " + p.Flags.String()
}

func (n *node) Wake(t time.Time) {
	n.wake = t
	if t.IsZero() {
		n.logf("wake off")
		return
	}
	n.logf("wake +%v", t.Sub(n.w.now))
}

func (n *node) Count(c qp.Counter, v uint64) { n.count[c] += v }

// options of a connection; the zero value is a plain one.
type options struct {
	mtu, timeout, retry, rnr, timer, depth uint8
	psnA, psnB                             uint32
	access                                 qp.Access
}

var plain = options{mtu: 10, timeout: 14, retry: 7, rnr: 7, timer: 12, depth: 4,
	access: qp.RemoteRead | qp.RemoteWrite | qp.RemoteAtomic}

const (
	maskInit  = qp.MaskState | qp.MaskAccess
	maskRTR   = qp.MaskState | qp.MaskAV | qp.MaskPathMTU | qp.MaskDestQPN | qp.MaskRQPSN | qp.MaskMaxDestRead | qp.MaskMinRNRTimer
	maskRTS   = qp.MaskState | qp.MaskTimeout | qp.MaskRetryCnt | qp.MaskRNRRetry | qp.MaskMaxRead | qp.MaskSQPSN
	maskUDInt = qp.MaskState | qp.MaskQKey
	maskUDRTS = qp.MaskState | qp.MaskSQPSN
)

// connect takes both QPs to RTS with each other as the peer.
func connect(a, b *node, o options) error {
	for _, side := range []struct {
		n, peer        *node
		sqpsn, rqpsn   uint32
		depthO, depthI uint8
	}{{a, b, o.psnA, o.psnB, o.depth, o.depth}, {b, a, o.psnB, o.psnA, o.depth, o.depth}} {
		if err := side.n.toRTR(side.peer, o, side.rqpsn); err != nil {
			return err
		}
		if err := side.n.toRTS(o, side.sqpsn); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) toRTR(peer *node, o options, rqpsn uint32) error {
	if err := n.q.Modify(maskInit, &qp.Attr{State: qp.Init, Access: o.access}); err != nil {
		return err
	}
	return n.q.Modify(maskRTR, &qp.Attr{
		State: qp.RTR, Dest: packet.Address{GID: peer.gid}, SrcGID: n.gid,
		PathMTU: o.mtu, DestQPN: peer.num, RQPSN: rqpsn, MaxDestRead: o.depth, MinRNRTimer: o.timer,
	})
}

func (n *node) toRTS(o options, sqpsn uint32) error {
	return n.q.Modify(maskRTS, &qp.Attr{
		State: qp.RTS, Timeout: o.timeout, RetryCnt: o.retry, RNRRetry: o.rnr, MaxRead: o.depth, SQPSN: sqpsn,
	})
}

func (n *node) toDatagram(qkey uint32) error {
	for _, s := range []struct {
		m qp.Mask
		a qp.Attr
	}{
		{maskUDInt, qp.Attr{State: qp.Init, QKey: qkey}},
		{qp.MaskState, qp.Attr{State: qp.RTR}},
		{maskUDRTS, qp.Attr{State: qp.RTS}},
	} {
		if err := n.q.Modify(s.m, &s.a); err != nil {
			return err
		}
	}
	return nil
}

// list splits [va, va+n) under key into one element.
func list(key uint32, va uint64, n uint32) (l [qp.MaxSGE]qp.SGE, num uint8) {
	l[0] = qp.SGE{VA: va, Len: n, Key: key}
	return l, 1
}

// post appends a send WQE of one SGE.
func (n *node) post(w qp.SendWork, key uint32, va uint64, size uint32) {
	w.Length = size
	if size > 0 || w.Op == qp.OpCompareSwap || w.Op == qp.OpFetchAdd {
		w.SGE, w.NumSGE = list(key, va, size)
	}
	n.sq = append(n.sq, w)
}

// receive appends a receive WQE of one SGE.
func (n *node) receive(id uint64, key uint32, va uint64, size uint32) {
	r := qp.RecvWork{ID: id, Length: uint64(size)}
	r.SGE, r.NumSGE = list(key, va, size)
	n.rq = append(n.rq, r)
}
