// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"sync"
)

// Type is a queue pair type, with the device's numbers.
type Type uint8

// Queue pair types. GSI is type UD with id 1.
const (
	RC  Type = 0
	UC  Type = 1
	UD  Type = 3
	GSI Type = 0x80 // driver's own; UD on the wire
)

func (t Type) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	case GSI:
		return "GSI"
	}
	return fmt.Sprintf("type %d", uint8(t))
}

func (t Type) datagram() bool { return t == UD || t == GSI }

// State is a queue pair state, with the device's numbers.
type State uint8

// Queue pair states.
const (
	Reset State = iota
	Init
	RTR
	RTS
	SQD
	SQE
	Err
)

func (s State) String() string {
	names := [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// QPConfig describes a queue pair.
type QPConfig struct {
	Type           Type
	SendCQ, RecvCQ *CQ
	MaxSend        int // work requests
	MaxRecv        int
	MaxSendSGE     int // 1..8
	MaxRecvSGE     int
	MaxInline      int // bytes
	SignalAll      bool
	// UnsafeGlobalKey lets peers of a kernel queue pair use key 0.
	UnsafeGlobalKey bool
}

// QP flags of CREATE_QP and MODIFY_QP.
const (
	qpSQSpec           = 1 << 8
	qpRQSpec           = 1 << 9
	qpRemotePrivileged = 1 << 10
	qpSQDraining       = 1 << 11
	qpSQDNotify        = 1 << 12
	qpPrivileged       = 1 << 15

	gsiQPN = 1
	// specSGEs is the number of SGEs above which a work request has a length
	// array before its SGEs.
	specSGEs = 2
	maxSGEs  = 8
	wqeData  = 32 // offset of payload or SGEs
)

// QP is a queue pair.
type QP struct {
	c    *Context
	pd   *PD
	QPN  uint32
	Type Type

	sendCQ, recvCQ     *CQ
	sendHalf, recvHalf *halfCQ // halves that this queue pair's engine uses
	udma               int
	flags              uint16
	signalAll          bool
	ahID               uint32 // RC and UC carry one in MODIFY

	state struct {
		sync.Mutex
		now State
	}
	// listed says on which lists of its completion queues the queue pair is;
	// guarded by the locks of those.
	listed struct{ poll, flushSQ, flushRQ bool }

	sq sendQueue
	rq recvQueue
}

// strideLog2 chooses the size of a work request for SGEs and inline bytes.
func strideLog2(sges, inline int) int {
	n := wqeData + 16*sges
	if sges > specSGEs {
		n += 16 * specSGEs
	}
	return ceilLog2(max(64, n, wqeData+inline))
}

// CreateQP makes a queue pair in RESET.
func (p *PD) CreateQP(cfg QPConfig) (*QP, error) {
	qp, err := p.createQP(cfg)
	if err != nil {
		return nil, fmt.Errorf("verbs: create %v queue pair: %w", cfg.Type, err)
	}
	return qp, nil
}

func (p *PD) createQP(cfg QPConfig) (*QP, error) {
	c, d := p.c, p.c.d
	ss, rs := strideLog2(cfg.MaxSendSGE, cfg.MaxInline), strideLog2(cfg.MaxRecvSGE, 0)
	if max(ss, rs) > int(d.MaxStride) || cfg.MaxSendSGE > maxSGEs || cfg.MaxRecvSGE > maxSGEs || cfg.MaxSend < 0 || cfg.MaxRecv < 0 {
		return nil, fmt.Errorf("%d and %d SGEs with %d inline bytes do not fit a work request of %d bytes",
			cfg.MaxSendSGE, cfg.MaxRecvSGE, cfg.MaxInline, 1<<d.MaxStride)
	}
	qp := &QP{c: c, pd: p, Type: cfg.Type, sendCQ: cfg.SendCQ, recvCQ: cfg.RecvCQ, signalAll: cfg.SignalAll}
	qp.flags = qpSQSpec | qpRQSpec
	if c.kernel {
		qp.flags |= qpPrivileged
	}
	if cfg.UnsafeGlobalKey {
		qp.flags |= qpRemotePrivileged
	}
	if err := qp.takeIDs(); err != nil {
		return nil, err
	}
	qp.sendHalf, qp.recvHalf = cfg.SendCQ.half[qp.udma], cfg.RecvCQ.half[qp.udma]
	var err error
	if qp.sq.ring, err = newRing(d.mem, cfg.MaxSend, ss, c.kernel); err != nil {
		return nil, err
	}
	if qp.rq.ring, err = newRing(d.mem, cfg.MaxRecv, rs, c.kernel); err != nil {
		return nil, err
	}
	qp.sq.init()
	qp.rq.init()
	d.qps.set(qp.QPN, qp)
	if err := qp.sendCreate(); err != nil {
		d.qps.del(qp.QPN)
		qp.releaseMemory()
		qp.putIDs()
		return nil, err
	}
	return qp, nil
}

// takeIDs chooses the engine in turn, and the ids of the queue pair.
func (qp *QP) takeIDs() (err error) {
	d := qp.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if qp.Type == GSI {
		qp.QPN = gsiQPN
		return nil
	}
	qp.udma = d.turn
	d.turn ^= numUDMA - 1
	if qp.QPN, err = d.qpIDs.take(qp.udma); err != nil {
		return err
	}
	if !qp.Type.datagram() {
		qp.ahID, err = d.ahIDs.take()
	}
	return err
}

func (qp *QP) putIDs() {
	d := qp.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if qp.Type != GSI {
		d.qpIDs.put(qp.QPN)
	}
	if !qp.Type.datagram() {
		d.ahIDs.put(qp.ahID)
	}
}

func (qp *QP) sendCreate() error {
	d := qp.c.d
	sq, err := qp.sq.ring.describe()
	if err != nil {
		return err
	}
	defer sq.release(d.mem)
	rq, err := qp.rq.ring.describe()
	if err != nil {
		return err
	}
	defer rq.release(d.mem)
	b := make([]byte, 64)
	le.PutUint32(b[0:], qp.pd.ID)
	be.PutUint32(b[4:], uint32(qp.flags))
	putRing(b[8:], qp.sendHalf.id, qp.sq.ring, sq)
	putRing(b[32:], qp.recvHalf.id, qp.rq.ring, rq)
	le.PutUint32(b[56:], qp.QPN)
	le.PutUint16(b[60:], uint16(qp.c.pid))
	b[62] = uint8(qp.Type)
	if qp.Type == GSI {
		b[62] = uint8(UD)
	}
	return d.command(admCreateQP, b)
}

// putRing writes the 24 bytes that describe one ring of a queue pair.
func putRing(b []byte, cq uint32, r *ring, buf buffer) {
	le.PutUint32(b[0:], cq)
	b[4], b[5], b[6], b[7] = uint8(r.depthLog2), uint8(r.strideLog2), 0, buf.pageLog2
	le.PutUint32(b[8:], 0xffffffff)
	le.PutUint32(b[12:], buf.count)
	le.PutUint64(b[16:], buf.address)
}

// releaseMemory gives the rings back.
func (qp *QP) releaseMemory() {
	qp.sq.ring.release()
	qp.rq.ring.release()
}

// Destroy destroys the queue pair. The device touches no memory of it after.
func (qp *QP) Destroy() error {
	d := qp.c.d
	if err := d.command(admDestroyQP, le.AppendUint32(nil, qp.QPN)); err != nil {
		return fmt.Errorf("verbs: destroy queue pair %d: %w", qp.QPN, err)
	}
	qp.sendHalf.clean(qp)
	qp.recvHalf.clean(qp)
	d.qps.del(qp.QPN)
	qp.releaseMemory()
	qp.putIDs()
	return nil
}

// State returns the state that the driver believes the queue pair to be in.
func (qp *QP) State() State {
	qp.state.Lock()
	defer qp.state.Unlock()
	return qp.state.now
}

// Engine returns which half of its completion queues the queue pair uses.
func (qp *QP) Engine() int { return qp.udma }

// String describes the queue pair and what it waits for.
func (qp *QP) String() string {
	qp.sq.mu.Lock()
	s := qp.sq.describe()
	qp.sq.mu.Unlock()
	qp.rq.mu.Lock()
	defer qp.rq.mu.Unlock()
	return fmt.Sprintf("%v queue pair %d %v: %s, receive queue %d..%d", qp.Type, qp.QPN, qp.State(), s, qp.rq.cons, qp.rq.prod)
}
