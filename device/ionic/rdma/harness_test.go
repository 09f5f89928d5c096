// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/ionic/intr"
	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/internal/testram"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// fabric is an in-memory network of engines, found by MAC address.
type fabric struct {
	mu     sync.Mutex // guards all below
	nodes  map[[6]byte]*rdma.Engine
	intake func(p *packet.Packet) qp.Verdict // what to do instead of delivery; nil or Sent: deliver
	stuck  func(p *packet.Packet)            // takes the packets and keeps them; nil: nobody does

	judging sync.Mutex // held while intake runs: it is asked about one packet at a time
}

// swallowed is a verdict of an intake: the packet is lost on its way, and its
// sender does not know.
const swallowed qp.Verdict = 99

func newFabric() *fabric { return &fabric{nodes: make(map[[6]byte]*rdma.Engine)} }

func (f *fabric) Transmit(dst *packet.Address, p *packet.Packet) qp.Verdict {
	f.mu.Lock()
	e, intake, stuck := f.nodes[dst.MAC], f.intake, f.stuck
	f.mu.Unlock()
	if stuck != nil {
		f.judging.Lock()
		defer f.judging.Unlock()
		stuck(p)
		return qp.Sent
	}
	if e == nil {
		p.Release()
		return qp.Lost
	}
	if intake != nil {
		f.judging.Lock()
		v := intake(p)
		f.judging.Unlock()
		switch v {
		case qp.Sent:
		case swallowed:
			p.Release()
			return qp.Sent
		case qp.Lost:
			p.Release()
			return v
		default:
			return v
		}
	}
	e.Deliver(p)
	return qp.Sent
}

func (f *fabric) filter(g func(p *packet.Packet) qp.Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.intake = g
}

// byMAC is the engine that a packet between two nodes of template is for.
func (f *fabric) byMAC(p *packet.Packet) *rdma.Engine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[[6]byte{2, 0xaa, 0xbb, 0xcc, 0xdd, p.DstGID[15]}]
}

// setStuck makes a link that holds every packet: g is given them to keep.
func (f *fabric) setStuck(g func(p *packet.Packet)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck = g
}

// seenAddress is a report to the AddressObserver.
type seenAddress struct {
	packet.Address
	source rdma.AddressSource
}

// node is a guest with its engine: it does what ionic_rdma.ko does, step by
// step.
type node struct {
	t      testing.TB
	ram    *testram.RAM
	bank   *intr.Bank
	engine *rdma.Engine
	mac    [6]byte

	mu       sync.Mutex // guards all below
	raised   map[int]int
	observed []seenAddress

	eqs  []*eventRing
	acq  *compRing
	aq   uint64 // ring address
	aqAt uint32
	ids  uint32 // next free object id

	manyPage uint64 // memory of what populate has made
	acqSeen  uint32 // of real.drain: admin ring index behind the last completed command
}

// AddressSeen implements rdma.AddressObserver.
func (n *node) AddressSeen(a packet.Address, s rdma.AddressSource) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observed = append(n.observed, seenAddress{a, s})
}

// options change what newNode makes.
type options struct {
	ram    uint64
	limits rdma.Limits
}

func newNode(t testing.TB, f *fabric, last byte, o options) *node {
	t.Helper()
	if o.ram == 0 {
		o.ram = 64 << 20
	}
	n := &node{t: t, bank: intr.New(32), raised: make(map[int]int), mac: [6]byte{2, 0xaa, 0xbb, 0xcc, 0xdd, last}, ids: 16}
	n.ram = testram.New(t, o.ram)
	n.bank.SetOpen(true)
	n.bank.SetSignal(func(vec int) {
		n.mu.Lock()
		n.raised[vec]++
		n.mu.Unlock()
	})
	log := zerolog.Nop()
	if _, ok := t.(*testing.T); ok {
		log = zerolog.New(zerolog.NewTestWriter(t))
	}
	var err error
	n.engine, err = rdma.New(rdma.Config{Limits: o.limits, Interrupts: n.bank, Link: f, Addresses: n, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.engine.Close)
	n.engine.Attach(n.ram.Space)
	f.mu.Lock()
	f.nodes[n.mac] = n.engine
	f.mu.Unlock()
	return n
}

// settle waits until the engine has nothing to do.
func (n *node) settle() { synctest.Wait() }

func (n *node) interrupts(vec int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.raised[vec]
}

// intrWrite writes an interrupt register as the NIC's BAR0 handler does.
func (n *node) intrWrite(vec int, reg uint64, v uint32) {
	if reg == 4 && v == 0 || reg == 8 && v&0x10000 != 0 {
		n.engine.Unmasking(vec)
	}
	n.bank.Write(uint64(vec)*32+reg, v)
}

// command issues a LIF command.
func (n *node) command(c abi.QueueCommand) uint8 {
	var b [64]byte
	var comp [16]byte
	c.Put(b[:])
	return n.engine.Command(&b, &comp)
}

func (n *node) mustCommand(c abi.QueueCommand) {
	n.t.Helper()
	if st := n.command(c); st != 0 {
		n.t.Fatalf("command %d: status %d", c.Opcode, st)
	}
}

// eventRing is the driver's view of an EQ.
type eventRing struct {
	at    uint64
	depth uint8
	vec   int
	cons  uint32
}

// next returns the oldest unread event.
func (n *node) nextEvent(q *eventRing) (abi.EQE, bool) {
	at := q.at + uint64(q.cons&(1<<q.depth-1))*4
	v := n.ram.Load32(at)
	e, color := abi.DecodeEQE(v>>24 | v>>8&0xff00 | v<<8&0xff0000 | v<<24)
	if uint32(color) != ^(q.cons>>q.depth)&1 {
		return e, false
	}
	q.cons++
	return e, true
}

// isr does what the driver's interrupt handler does: it reads all events and
// unmasks without returning credits.
func (n *node) isr(q *eventRing) (events []abi.EQE) {
	for e, ok := n.nextEvent(q); ok; e, ok = n.nextEvent(q) {
		events = append(events, e)
	}
	n.intrWrite(q.vec, 8, 0x10000)
	return events
}

// compRing is the driver's view of a CQ.
type compRing struct {
	id    uint32
	pid   uint32
	at    uint64
	depth uint8
	cons  uint32
	arms  uint16
	page  func(off uint64) uint64 // where byte off of the ring is, nil: contiguous
}

// entry returns the bytes of the next unread CQE, nil when there is none.
func (n *node) entry(q *compRing) []byte {
	off := uint64(q.cons&(1<<q.depth-1)) * abi.CQELen
	at := func(o uint64) uint64 {
		if q.page != nil {
			return q.page(o)
		}
		return q.at + o
	}
	if n.ram.Load32(at(off+28))>>24&1 != ^(q.cons>>q.depth)&1 {
		return nil
	}
	b := make([]byte, 0, abi.CQELen)
	for o := off; o < off+abi.CQELen; o += 4 {
		b = append(b, n.ram.Read(at(o), 4)...)
	}
	q.cons++
	return b
}

// poll returns the next unread CQE.
func (n *node) poll(q *compRing) (c abi.CQE, ok bool) {
	b := n.entry(q)
	if b == nil {
		return c, false
	}
	c.Get(b)
	return c, true
}

func (n *node) ring(pid uint32, slot uint8, d abi.Doorbell) { n.engine.Doorbell(pid, slot, d.Value()) }

// consumed rings the CQ's ring 0.
func (n *node) consumed(q *compRing) {
	n.ring(q.pid, rdma.SlotCQ, abi.Doorbell{Index: uint16(q.cons & (1<<q.depth - 1)), QID: q.id})
}

// arm says how far the CQ is read and asks for a notification.
func (n *node) arm(q *compRing, ring uint8) {
	n.consumed(q)
	q.arms++
	n.ring(q.pid, rdma.SlotCQ, abi.Doorbell{Index: q.arms & (1<<q.depth - 1), Ring: ring, QID: q.id})
}

// probe does what loading ionic_rdma on a guest with 4 CPUs does, up to the
// first admin command.
func (n *node) probe() {
	n.t.Helper()
	n.probeEQs(0, 1, 2, 3)
}

// probeEQs is probe with a choice of event queues; EQ 2 must be one.
func (n *node) probeEQs(ids ...int) {
	n.t.Helper()
	n.mustCommand(abi.QueueCommand{Opcode: abi.CmdResetLIF})
	n.eqs = nil
	for _, i := range ids {
		vec := 5 + i
		n.intrWrite(vec, 4, 1)
		n.intrWrite(vec, 12, 1)
		n.intrWrite(vec, 0, 0)
		n.intrWrite(vec, 8, 0x20000)
		q := &eventRing{at: n.ram.Alloc(4096), depth: 10, vec: vec}
		n.mustCommand(abi.QueueCommand{Opcode: abi.CmdCreateEQ, ID: uint32(i), CID: uint32(vec), DepthLog2: 10, StrideLog2: 2, DMA: q.at})
		n.eqs = append(n.eqs, q)
		n.intrWrite(vec, 4, 0)
	}
	n.acq = &compRing{at: n.ram.Alloc(8192), depth: 8}
	n.mustCommand(abi.QueueCommand{Opcode: abi.CmdCreateCQ, ID: 0, CID: 2, DepthLog2: 8, StrideLog2: 5, DMA: n.acq.at})
	n.aq, n.aqAt = n.ram.Alloc(32<<10), 0
	n.mustCommand(abi.QueueCommand{Opcode: abi.CmdCreateAdminQ, ID: 0, CID: 0, DepthLog2: 9, StrideLog2: 6, DMA: n.aq})
	n.arm(n.acq, abi.RingArm)
}

// body is the body of an admin command.
type body interface{ Put(b []byte) }

// lengths are the body lengths the driver sends.
var lengths = map[uint8]uint16{
	abi.AdminCreateCQ: abi.CreateCQLen, abi.AdminCreateQP: abi.CreateQPLen, abi.AdminCreateMR: abi.CreateMRLen,
	abi.AdminStatsHeaders: abi.StatsLen, abi.AdminStatsValues: abi.StatsLen, abi.AdminDestroyMR: abi.DestroyLen,
	abi.AdminDestroyCQ: abi.DestroyLen, abi.AdminModifyQP: abi.ModifyQPLen, abi.AdminQueryQP: abi.QueryQPLen,
	abi.AdminDestroyQP: abi.DestroyLen, abi.AdminCreateAH: abi.CreateAHLen, abi.AdminDestroyAH: abi.DestroyLen,
	abi.AdminQPStatsHdrs: abi.StatsLen, abi.AdminQPStatsVals: abi.StatsLen, abi.AdminQueryAH: abi.QueryAHLen,
}

// post writes an admin command to the ring without ringing.
func (n *node) post(op uint8, b body) {
	var cmd [abi.MaxAdminBytes]byte
	if b != nil {
		b.Put(cmd[:])
	}
	abi.PutAdminHeader(cmd[:], op, lengths[op])
	n.postRaw(cmd[:abi.AdminStrides(lengths[op])*64])
}

func (n *node) postRaw(cmd []byte) {
	for i := 0; i < len(cmd); i += 64 {
		n.ram.Write(n.aq+uint64(n.aqAt)*64, cmd[i:i+64])
		n.aqAt = (n.aqAt + 1) & 511
	}
}

func (n *node) ringAdmin() {
	n.ring(0, rdma.SlotAQ, abi.Doorbell{Index: uint16(n.aqAt)})
}

// admin executes a command and returns its completion.
func (n *node) admin(op uint8, b body) abi.CQE {
	n.t.Helper()
	first := n.aqAt
	n.post(op, b)
	n.ringAdmin()
	n.settle()
	c, ok := n.poll(n.acq)
	if !ok {
		n.t.Fatalf("%s did not complete", abi.AdminOpName(op))
	}
	n.consumed(n.acq)
	if c.Type != abi.CQEAdmin || c.QID != 0 || c.CmdOp != op || uint32(c.CmdIndex) != first {
		n.t.Fatalf("%s completed with %+v, command at %d", abi.AdminOpName(op), c, first)
	}
	return c
}

// status executes a command and returns its status.
func (n *node) status(op uint8, b body) abi.AdminStatus {
	n.t.Helper()
	c := n.admin(op, b)
	if c.Error != (c.StatusLength != 0) {
		n.t.Fatalf("%s: error bit %v with status %d", abi.AdminOpName(op), c.Error, c.StatusLength)
	}
	return abi.AdminStatus(c.StatusLength)
}

// must executes a command that has to succeed.
func (n *node) must(op uint8, b body) {
	n.t.Helper()
	if st := n.status(op, b); st != abi.AdminOK {
		n.t.Fatalf("%s: %v", abi.AdminOpName(op), st)
	}
}

// id returns an unused id.
func (n *node) id() uint32 {
	n.ids++
	return n.ids
}

// createCQ makes a contiguous CQ on EQ 2.
func (n *node) createCQ(depth uint8, pid uint16) *compRing {
	n.t.Helper()
	return n.createCQAt(n.ram.Alloc(32<<depth), depth, pid)
}

func (n *node) createCQAt(at uint64, depth uint8, pid uint16) *compRing {
	n.t.Helper()
	q := &compRing{id: n.id(), pid: uint32(pid), at: at, depth: depth}
	n.must(abi.AdminCreateCQ, &abi.CreateCQ{EQ: 2, DepthLog2: depth, StrideLog2: 5, ID: q.id, MapCount: 1, DMA: q.at, DBID: pid})
	return q
}

// pair is the driver's view of a QP.
type pair struct {
	n          *node
	id         uint32
	pid        uint32
	typ        uint8
	flags      uint16 // of CREATE_QP, which the driver repeats in every MODIFY_QP
	scq, rcq   *compRing
	sq, rq     uint64
	depth      uint8
	stride     uint8
	sqAt, rqAt uint32
}

// qpOptions change what createQP makes.
type qpOptions struct {
	id     uint32
	typ    uint8
	flags  uint32
	pd     uint32
	pid    uint16
	depth  uint8
	stride uint8
	scq    *compRing
	rcq    *compRing
	sq, rq uint64 // memory of the rings; 0: allocated
}

func (n *node) createQP(o qpOptions) *pair {
	n.t.Helper()
	if o.depth == 0 {
		o.depth = 6
	}
	if o.stride == 0 {
		o.stride = 6
	}
	if o.id == 0 {
		o.id = n.id()
	}
	if o.scq == nil {
		o.scq = n.createCQ(8, o.pid)
	}
	if o.rcq == nil {
		o.rcq = o.scq
	}
	p := &pair{n: n, id: o.id, pid: uint32(o.pid), typ: o.typ, flags: uint16(o.flags), scq: o.scq, rcq: o.rcq, depth: o.depth, stride: o.stride}
	size := uint64(1) << (o.depth + o.stride)
	if p.sq, p.rq = o.sq, o.rq; p.sq == 0 {
		p.sq = n.ram.Alloc(size)
	}
	if p.rq == 0 {
		p.rq = n.ram.Alloc(size)
	}
	n.must(abi.AdminCreateQP, p.create(o))
	return p
}

func (p *pair) create(o qpOptions) *abi.CreateQP {
	return &abi.CreateQP{
		PD: o.pd, Flags: o.flags, ID: p.id, DBID: o.pid, Type: o.typ,
		SQ: abi.RingDesc{CQ: p.scq.id, DepthLog2: p.depth, StrideLog2: p.stride, MapCount: 1, DMA: p.sq},
		RQ: abi.RingDesc{CQ: p.rcq.id, DepthLog2: p.depth, StrideLog2: p.stride, MapCount: 1, DMA: p.rq},
	}
}

func (p *pair) destroy() {
	p.n.t.Helper()
	p.n.must(abi.AdminDestroyQP, &abi.Destroy{ID: p.id})
	size := uint64(1) << (p.depth + p.stride)
	p.n.ram.Free(p.sq, size)
	p.n.ram.Free(p.rq, size)
}

// template is an IPv4 header template from n to peer.
func (n *node) template(peer *node) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(fmt.Sprintf(
		"%x %x 0800 456affff000040004011 0000 c0a8c8%02x c0a8c8%02x 6e7012b700200000",
		peer.mac, n.mac, n.mac[5], peer.mac[5]), " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// Masks of the usual transitions.
const (
	maskInitRC = 0x39
	maskRTRRC  = 0x129181
	maskRTSRC  = 0x12e01
	maskRTRUC  = 0x101181
	maskRTSUC  = 0x10001
	maskInitUD = 0x71
)

const allRights = abi.QPRemoteWrite | abi.QPRemoteRead | abi.QPRemoteAtomic

// connectRC brings an RC or UC QP to RTS.
func (p *pair) connect(peer *pair) {
	p.n.t.Helper()
	p.toInit()
	p.toRTR(peer)
	p.toRTS()
}

func (p *pair) toInit() {
	p.n.t.Helper()
	p.n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: maskInitRC, State: 1, Flags: allRights | p.flags, ID: p.id})
}

func (p *pair) toRTR(peer *pair) {
	p.n.t.Helper()
	tmpl := p.n.template(peer.n)
	at := p.n.ram.Alloc(uint64(len(tmpl)))
	p.n.ram.Write(at, tmpl)
	mask := uint32(maskRTRRC)
	if p.typ == abi.TypeUC {
		mask = maskRTRUC
	}
	p.n.must(abi.AdminModifyQP, &abi.ModifyQP{
		Mask: mask, State: 2, Flags: p.flags, PMTU: 10, RQPSN: peer.id * 7, QKeyDestQPN: peer.id, RNRTimer: 12, RSQDepth: 5,
		AH: p.id + 1000, TemplateLen: uint8(len(tmpl)), DMA: at, ID: p.id,
	})
	p.n.ram.Free(at, uint64(len(tmpl)))
}

func (p *pair) toRTS() {
	p.n.t.Helper()
	p.toRTSWith(14, 7, 7)
}

// toRTSWith is toRTS with the encoded timeout, retry_cnt and rnr_retry.
func (p *pair) toRTSWith(timeout, retry, rnr uint8) {
	p.n.t.Helper()
	mask := uint32(maskRTSRC)
	if p.typ == abi.TypeUC {
		mask = maskRTSUC
	}
	p.n.must(abi.AdminModifyQP, &abi.ModifyQP{
		Mask: mask, State: 3, Flags: p.flags, SQPSN: p.id * 7, Timeout: timeout, RetryCnt: retry, RNRRetry: rnr, RRQDepth: 4, ID: p.id,
	})
}

// datagramQP makes a UD QP in RTS.
func (n *node) datagramQP(o qpOptions, qkey uint32) *pair {
	n.t.Helper()
	o.typ = abi.TypeUD
	p := n.createQP(o)
	n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: maskInitUD, State: 1, Flags: p.flags, QKeyDestQPN: qkey, ID: p.id})
	n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 2, Flags: p.flags, ID: p.id})
	n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 0x10001, State: 3, Flags: p.flags, ID: p.id})
	return p
}

// sge is a scatter-gather element.
type sge struct {
	va  uint64
	len uint32
	key uint32
}

// work is an SQ or RQ entry under construction.
type work struct{ b []byte }

func newWork(stride uint8) *work { return &work{make([]byte, 1<<stride)} }

func (w *work) u8(off int, v uint8) *work   { w.b[off] = v; return w }
func (w *work) u16(off int, v uint16) *work { binary.BigEndian.PutUint16(w.b[off:], v); return w }
func (w *work) u32(off int, v uint32) *work { binary.BigEndian.PutUint32(w.b[off:], v); return w }
func (w *work) u64(off int, v uint64) *work { binary.BigEndian.PutUint64(w.b[off:], v); return w }
func (w *work) flag(f uint16) *work {
	return w.u16(abi.WQEFlags, binary.BigEndian.Uint16(w.b[abi.WQEFlags:])|f)
}
func (w *work) remote(va uint64, k uint32) *work {
	return w.u64(abi.RemoteVA, va).u32(abi.RemoteKey, k)
}

// list writes SGEs as the driver does: with a length array for 3 and more.
func (w *work) list(sges ...sge) *work {
	at := abi.Payload
	if len(sges) > 2 {
		at = abi.SpecSGE
		w.flag(abi.WQESpec32 << abi.WQESpecShift)
	}
	var sum uint32
	for i, s := range sges {
		w.u64(at+16*i, s.va).u32(at+16*i+8, s.len).u32(at+16*i+12, s.key)
		sum += s.len
	}
	w.u8(abi.WQENumSGE, uint8(len(sges)))
	return w.u32(abi.PayloadLen, sum)
}

// send is an SQ entry with op and payload.
func (p *pair) send(op uint8, sges ...sge) *work {
	return newWork(p.stride).u8(abi.WQEOp, op).flag(abi.WQESignaled).list(sges...)
}

func (p *pair) postSend(w *work) {
	mask := uint32(1)<<p.depth - 1
	binary.LittleEndian.PutUint64(w.b, uint64(p.sqAt))
	p.n.ram.Write(p.sq+uint64(p.sqAt)<<p.stride, w.b)
	p.sqAt = (p.sqAt + 1) & mask
	p.n.ring(p.pid, rdma.SlotSQ, abi.Doorbell{Index: uint16(p.sqAt), QID: p.id})
}

func (p *pair) postRecv(token uint64, sges ...sge) {
	mask := uint32(1)<<p.depth - 1
	w := newWork(p.stride).list(sges...)
	w.u32(abi.WQEImm, binary.BigEndian.Uint32(w.b[abi.PayloadLen:])).u32(abi.PayloadLen, 0)
	binary.LittleEndian.PutUint64(w.b, token)
	p.n.ram.Write(p.rq+uint64(p.rqAt)<<p.stride, w.b)
	p.rqAt = (p.rqAt + 1) & mask
	p.n.ring(p.pid, rdma.SlotRQ, abi.Doorbell{Index: uint16(p.rqAt), QID: p.id})
}

// region registers n fresh bytes.
func (n *node) region(size uint64, pd uint32, flags uint16) (at uint64, key uint32) {
	n.t.Helper()
	at, key = n.ram.Alloc(size), n.id()<<8|0x42
	n.must(abi.AdminCreateMR, &abi.CreateMR{VA: at, Length: size, PD: pd, ID: key, MapCount: 1, DMA: at, Flags: flags})
	return at, key
}

// fill writes a recognisable pattern.
func (n *node) fill(at uint64, size int, seed byte) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i)*3 + byte(i>>8)*7 + seed
	}
	n.ram.Write(at, b)
	return b
}

const mrAll = abi.MRLocalWrite | abi.MRRemoteWrite | abi.MRRemoteRead | abi.MRRemoteAtomic

// bubble runs f with a clock of its own.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// expect polls exactly the completions of want, then checks that there is
// nothing more.
func (n *node) expect(q *compRing, want ...string) {
	n.t.Helper()
	n.settle()
	for i, s := range want {
		b := n.entry(q)
		if b == nil {
			n.t.Fatalf("completion %d of CQ %d is missing, want %s", i, q.id, s)
		}
		if got := hex.EncodeToString(b); got != strings.ReplaceAll(s, " ", "") {
			n.t.Fatalf("completion %d of CQ %d:\n got %s\nwant %s", i, q.id, got, strings.ReplaceAll(s, " ", ""))
		}
	}
	if b := n.entry(q); b != nil {
		n.t.Fatalf("CQ %d has one completion too many: %x", q.id, b)
	}
}

// second is long against every wait of the driver and short for a test with a
// clock of its own.
const second = time.Second
