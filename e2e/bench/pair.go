// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

const (
	queueDepth = 512
	inlineSize = 128
)

// pair is two connected queue pairs, a sends to b, with registered memory on
// both sides.
type pair struct {
	stack    *stack
	a, b     side
	cleanups []func() error
	spin     bool
}

type side struct {
	end *end
	cq  *verbs.CQ
	qp  *verbs.QP
	buf *verbs.Buffer
	mr  *verbs.MR
	wc  []verbs.WC

	sent     int // send completions that were read and not asked for yet
	receives int // receives that are posted, where that is counted
}

func newPair(on *stack, bufSize int, spin bool) (p *pair, err error) {
	p = &pair{stack: on, spin: spin}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	for i, s := range []*side{&p.a, &p.b} {
		if err := p.open(s, on.ends[i], bufSize); err != nil {
			return p, err
		}
	}
	const psn = 1000
	for _, d := range [][2]*side{{&p.a, &p.b}, {&p.b, &p.a}} {
		from, to := d[0], d[1]
		path := verbs.Path{SrcMAC: from.end.guest.NIC.MAC(), DstMAC: to.end.guest.NIC.MAC(), Src: from.end.addr, Dst: to.end.addr}
		if err := from.qp.Connect(path, psn, verbs.Connection{QPN: to.qp.QPN, PSN: psn}, verbs.ConnectOptions{MTULog2: 12}); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *pair) open(s *side, e *end, bufSize int) (err error) {
	s.end, s.wc = e, make([]verbs.WC, 64)
	if s.cq, err = e.ctx.CreateCQ(2*queueDepth, 0); err != nil {
		return err
	}
	p.cleanups = append(p.cleanups, s.cq.Destroy)
	s.qp, err = e.pd.CreateQP(verbs.QPConfig{
		Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, MaxSend: queueDepth - 1, MaxRecv: queueDepth - 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: inlineSize,
	})
	if err != nil {
		return err
	}
	p.cleanups = append(p.cleanups, s.qp.Destroy)
	if s.buf, err = e.ctx.NewContiguousBuffer(bufSize); err != nil {
		return err
	}
	p.cleanups = append(p.cleanups, func() error { s.buf.Free(); return nil })
	if s.mr, err = e.pd.RegMR(s.buf, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead); err != nil {
		return err
	}
	p.cleanups = append(p.cleanups, s.mr.Dereg)
	return nil
}

// close destroys everything in the reverse order.
func (p *pair) close() error {
	var errs []error
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		errs = append(errs, p.cleanups[i]())
	}
	p.cleanups = nil
	return errors.Join(errs...)
}

// await polls until a side has at least one completion and returns their
// number. An unsuccessful one is an error.
func (p *pair) await(ctx context.Context, s *side) (int, error) {
	for spins := 0; ; spins++ {
		n, err := s.cq.Poll(s.wc)
		if err != nil {
			return 0, err
		}
		for _, w := range s.wc[:n] {
			if w.Status != verbs.Success {
				return 0, fmt.Errorf("queue pair %d: completion: %v", w.QPN, w.Status)
			}
		}
		if n > 0 {
			return n, nil
		}
		if spins%4096 == 4095 {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			if err := s.end.guest.NIC.Err(); err != nil {
				return 0, err
			}
		}
		p.idle()
	}
}

// idle gives the CPU to whoever needs it: with fewer CPUs than busy processes, a
// guest that polls holds up the worker that it waits for.
func (p *pair) idle() {
	runtime.Gosched()
	if !p.spin {
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // cannot fail
	}
}
