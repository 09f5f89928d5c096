// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/rand/v2"
)

// Mask says which attributes of a MODIFY_QP are meant, with the bits of verbs.
type Mask uint32

// Attribute bits.
const (
	MaskState      Mask = 1 << 0
	MaskCurState   Mask = 1 << 1
	MaskSQDNotify  Mask = 1 << 2
	MaskAccess     Mask = 1 << 3
	MaskPKey       Mask = 1 << 4
	MaskPort       Mask = 1 << 5
	MaskQKey       Mask = 1 << 6
	MaskAV         Mask = 1 << 7
	MaskMTU        Mask = 1 << 8
	MaskTimeout    Mask = 1 << 9
	MaskRetry      Mask = 1 << 10
	MaskRNRRetry   Mask = 1 << 11
	MaskRQPSN      Mask = 1 << 12
	MaskRdAtomic   Mask = 1 << 13
	MaskMinRNR     Mask = 1 << 15
	MaskSQPSN      Mask = 1 << 16
	MaskDestAtomic Mask = 1 << 17
	MaskDestQPN    Mask = 1 << 20
	MaskRateLimit  Mask = 1 << 25
)

// Attr are the attributes of a queue pair.
type Attr struct {
	State         State
	CurState      State  // what the caller believes it to be
	Access        Access // remote write, read and atomic
	SQDNotify     bool   // with the transition to SQD: an event when it is drained
	Draining      bool   // of a query: in SQD, with work begun and not done
	RateLimit     uint32 // kilobits a second, 0 for none
	QKey          uint32
	DestQPN       uint32
	Path          Path
	MTULog2       uint8 // 8..12
	Timeout       uint8 // 4.096 us << n, 0 for ever
	Retry         uint8
	RNRRetry      uint8 // 7 for ever
	MinRNR        uint8 // IB encoding
	RQPSN, SQPSN  uint32
	MaxRdAtomic   int
	MaxDestAtomic int
	// RawRdAtomic and RawDestAtomic are the encoded depths that a query returns.
	RawRdAtomic, RawDestAtomic uint8
}

// Modify changes the attributes in mask. As in the kernel, the fields that are
// not meant hold garbage if the queue pair is the kernel's, zero if a process's.
func (qp *QP) Modify(a Attr, mask Mask) error {
	b := make([]byte, 60)
	if qp.c.kernel {
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
	}
	be.PutUint32(b[0:], uint32(mask))
	flags := qp.flags
	if mask&MaskAccess != 0 {
		flags |= uint16(a.Access>>1) & 7
	}
	if mask&MaskSQDNotify != 0 && a.SQDNotify {
		flags |= qpSQDNotify
	}
	be.PutUint16(b[6:], flags)
	put := func(bit Mask, f func()) {
		if mask&bit != 0 {
			f()
		}
	}
	put(MaskRQPSN, func() { le.PutUint32(b[8:], a.RQPSN) })
	put(MaskSQPSN, func() { le.PutUint32(b[12:], a.SQPSN) })
	put(MaskQKey, func() { le.PutUint32(b[16:], a.QKey) })
	put(MaskDestQPN, func() { le.PutUint32(b[16:], a.DestQPN) })
	put(MaskRateLimit, func() { le.PutUint32(b[20:], a.RateLimit) })
	put(MaskMTU, func() { b[24] = a.MTULog2 })
	put(MaskRetry|MaskRNRRetry, func() { b[25] = a.Retry&0xf | a.RNRRetry<<4 })
	put(MaskMinRNR, func() { b[26] = a.MinRNR })
	put(MaskTimeout, func() { b[27] = a.Timeout })
	put(MaskDestAtomic, func() {
		b[28] = destDepth(a.MaxDestAtomic)
		le.PutUint32(b[44:], 0xffffffff)
	})
	put(MaskRdAtomic, func() {
		b[29] = readDepth(a.MaxRdAtomic)
		le.PutUint32(b[40:], 0xffffffff)
	})
	if mask&MaskAV != 0 {
		release, err := qp.putPath(b, &a.Path)
		if err != nil {
			return err
		}
		defer release()
	}
	put(MaskState, func() { b[39] = uint8(a.State) | b[39]&0xf0 })
	put(MaskCurState, func() { b[39] = b[39]&0xf | uint8(a.CurState)<<4 })
	le.PutUint32(b[56:], qp.QPN)
	if err := qp.c.d.command(admModifyQP, b); err != nil {
		return fmt.Errorf("verbs: modify queue pair %d to %v with mask %#x: %w", qp.QPN, a.State, uint32(mask), err)
	}
	if mask&MaskState != 0 {
		qp.enter(a.State)
	}
	return nil
}

func readDepth(n int) uint8 {
	if n == 0 {
		return 0
	}
	return uint8(ceilLog2(n+2) - 1)
}

func destDepth(n int) uint8 {
	if n == 0 {
		return 0
	}
	return uint8(ceilLog2(n + 1))
}

// putPath writes the header template, which the guest frees after the command.
func (qp *QP) putPath(b []byte, p *Path) (release func(), err error) {
	if qp.Type.datagram() {
		return nil, fmt.Errorf("verbs: queue pair %d has no path", qp.QPN)
	}
	port := flowPortBase | uint16(qp.QPN*0x9e37)&0x3fff
	h, profile, err := p.template(true, port)
	if err != nil {
		return nil, err
	}
	mem := qp.c.d.mem
	buf, err := mem.Alloc(len(h))
	if err != nil {
		return nil, err
	}
	copy(buf.Bytes(), h)
	b[5] = profile
	le.PutUint32(b[32:], qp.ahID|uint32(len(h))<<24)
	b[36], b[37] = uint8(p.VLAN>>13), p.TrafficClass>>2
	le.PutUint64(b[48:], buf.IOVA)
	return func() { mem.Free(buf) }, nil
}

// enter does what the consumers do after a change of state.
func (qp *QP) enter(s State) {
	qp.state.Lock()
	qp.state.now = s
	qp.state.Unlock()
	switch s {
	case Err:
		qp.startFlush()
	case Reset:
		qp.sendHalf.clean(qp)
		qp.recvHalf.clean(qp)
		qp.sq.reset()
		qp.rq.reset()
	}
}

// startFlush makes both queues flush from the consumers' own records.
func (qp *QP) startFlush() {
	for _, send := range []bool{true, false} {
		h, mu, flag := qp.recvHalf, &qp.rq.mu, &qp.rq.flushing
		if send {
			h, mu, flag = qp.sendHalf, &qp.sq.mu, &qp.sq.flushing
		}
		h.mu.Lock()
		mu.Lock()
		*flag = true
		h.listFlush(qp, send)
		mu.Unlock()
		h.mu.Unlock()
	}
}

// Connection is what two connected queue pairs tell each other.
type Connection struct {
	QPN, PSN uint32
}

// ConnectOptions are the attributes of a connection; the zero value has the
// values of a pingpong program, with 15 reads or atomics at once.
type ConnectOptions struct {
	Access   Access // default: remote write, read and atomic
	MTULog2  uint8  // default 10
	Timeout  uint8  // default 14
	Retry    uint8  // default 7; NoRetry for 0
	RNRRetry uint8  // default 7
	MinRNR   uint8  // default 12
	NoRetry  bool
	NoRNR    bool // RNRRetry 0
	RdAtomic int  // default 15
}

func (o ConnectOptions) withDefaults() ConnectOptions {
	def := func(v *uint8, d uint8) {
		if *v == 0 {
			*v = d
		}
	}
	if o.Access == 0 {
		o.Access = RemoteWrite | RemoteRead | RemoteAtomic
	}
	def(&o.MTULog2, 10)
	def(&o.Timeout, 14)
	def(&o.Retry, 7)
	def(&o.RNRRetry, 7)
	def(&o.MinRNR, 12)
	if o.NoRetry {
		o.Retry = 0
	}
	if o.NoRNR {
		o.RNRRetry = 0
	}
	if o.RdAtomic == 0 {
		o.RdAtomic = 15
	}
	return o
}

// ToInit moves a connected queue pair to INIT.
func (qp *QP) ToInit(access Access) error {
	return qp.Modify(Attr{State: Init, Access: access}, MaskState|MaskAccess|MaskPKey|MaskPort)
}

// ToRTR moves a connected queue pair to RTR.
func (qp *QP) ToRTR(path Path, peer Connection, o ConnectOptions) error {
	o = o.withDefaults()
	mask := MaskState | MaskAV | MaskMTU | MaskDestQPN | MaskRQPSN
	if qp.Type == RC {
		mask |= MaskDestAtomic | MaskMinRNR
	}
	return qp.Modify(Attr{
		State: RTR, Path: path, MTULog2: o.MTULog2, DestQPN: peer.QPN, RQPSN: peer.PSN,
		MaxDestAtomic: o.RdAtomic, MinRNR: o.MinRNR,
	}, mask)
}

// ToRTS moves a connected queue pair to RTS.
func (qp *QP) ToRTS(psn uint32, o ConnectOptions) error {
	o = o.withDefaults()
	mask := MaskState | MaskSQPSN
	if qp.Type == RC {
		mask |= MaskTimeout | MaskRetry | MaskRNRRetry | MaskRdAtomic
	}
	return qp.Modify(Attr{
		State: RTS, SQPSN: psn, Timeout: o.Timeout, Retry: o.Retry, RNRRetry: o.RNRRetry, MaxRdAtomic: o.RdAtomic,
	}, mask)
}

// Connect moves a connected queue pair from RESET to RTS.
func (qp *QP) Connect(path Path, psn uint32, peer Connection, o ConnectOptions) error {
	o = o.withDefaults()
	if err := qp.ToInit(o.Access); err != nil {
		return err
	}
	if err := qp.ToRTR(path, peer, o); err != nil {
		return err
	}
	return qp.ToRTS(psn, o)
}

// Activate moves a datagram queue pair from RESET to RTS.
func (qp *QP) Activate(qkey, psn uint32) error {
	init := MaskState | MaskPKey | MaskPort | MaskQKey
	if qp.Type == GSI {
		init &^= MaskPort
	}
	for _, step := range []struct {
		a    Attr
		mask Mask
	}{
		{Attr{State: Init, QKey: qkey}, init},
		{Attr{State: RTR}, MaskState},
		{Attr{State: RTS, SQPSN: psn}, MaskState | MaskSQPSN},
	} {
		if err := qp.Modify(step.a, step.mask); err != nil {
			return err
		}
	}
	return nil
}

// ToErr moves the queue pair to ERR; both queues flush.
func (qp *QP) ToErr() error { return qp.Modify(Attr{State: Err}, MaskState) }

// ToReset moves the queue pair to RESET; both queues are empty.
func (qp *QP) ToReset() error { return qp.Modify(Attr{State: Reset}, MaskState) }

// Drain moves the queue pair from RTS to SQD: what was begun ends, nothing else
// is begun. With notify an EventSQDrained tells when that is so.
func (qp *QP) Drain(notify bool) error {
	return qp.Modify(Attr{State: SQD, SQDNotify: notify}, MaskState|MaskSQDNotify)
}

// Resume moves the queue pair from SQD back to RTS.
func (qp *QP) Resume() error {
	return qp.Modify(Attr{State: RTS, CurState: SQD}, MaskState|MaskCurState)
}

// Query reads the queue pair's attributes from the device.
func (qp *QP) Query() (Attr, error) {
	mem := qp.c.d.mem
	sq, err := mem.Alloc(4096)
	if err != nil {
		return Attr{}, err
	}
	defer mem.Free(sq)
	rq, err := mem.Alloc(4096)
	if err != nil {
		return Attr{}, err
	}
	defer mem.Free(rq)
	b := make([]byte, 34)
	le.PutUint64(b[8:], sq.IOVA)
	le.PutUint64(b[16:], rq.IOVA)
	le.PutUint32(b[24:], qp.ahID)
	le.PutUint32(b[28:], qp.QPN)
	if err := qp.c.d.command(admQueryQP, b); err != nil {
		return Attr{}, fmt.Errorf("verbs: query queue pair %d: %w", qp.QPN, err)
	}
	s, r := sq.Bytes(), rq.Bytes()
	flags := be.Uint16(s[2:]) | be.Uint16(r[8:])
	a := Attr{
		Draining: flags&qpSQDraining != 0, SQDNotify: flags&qpSQDNotify != 0, RateLimit: be.Uint32(s[12:]),
		State: State(r[0] >> 4), MTULog2: r[0] & 0xf,
		Retry: r[1] & 0xf, RNRRetry: r[1] >> 4, RawRdAtomic: r[2], RawDestAtomic: r[3],
		SQPSN: be.Uint32(r[4:]), RQPSN: be.Uint32(s[16:]),
		MinRNR: s[0], Timeout: s[1], QKey: be.Uint32(s[8:]), DestQPN: be.Uint32(s[8:]),
		Access: Access(flags) & 7 << 1,
	}
	if a.MTULog2 < 8 || a.MTULog2 > 12 {
		return a, qp.c.d.wedge("query of queue pair %d: MTU nibble %d: the kernel subtracts 7 blindly", qp.QPN, a.MTULog2)
	}
	return a, nil
}
