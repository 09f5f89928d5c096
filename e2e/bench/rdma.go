// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

// bandwidthMemory is the memory that bandwidth measurements go over, in bytes.
const bandwidthMemory = 8 << 20

// window is how many bytes of writes are outstanding.
const window = 4 << 20

// pairs is a connected pair of queue pairs on each stack.
type pairs []*pair

func newPairs(stacks []*stack, bufSize int, spin bool) (ps pairs, err error) {
	for _, s := range stacks {
		p, err := newPair(s, bufSize, spin)
		if err != nil {
			return nil, errors.Join(err, ps.close())
		}
		ps = append(ps, p)
	}
	return ps, nil
}

func (ps pairs) close() error {
	var errs []error
	for _, p := range ps {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

// turns calls round once to warm up, for a quarter of the time, and then once
// for each round that counts.
func (o *options) turns(round func(d time.Duration, counts bool) error) error {
	if err := round(o.round/4, false); err != nil {
		return err
	}
	for range o.rounds {
		if err := round(o.round, true); err != nil {
			return err
		}
	}
	return nil
}

func measureBandwidth(ctx context.Context, stacks []*stack, o options, size int) (found []bandwidth, err error) {
	conn, err := dialTCP(ctx, fmt.Sprintf("%s:%d", tcpSink, size))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	ps, err := newPairs(stacks, bandwidthMemory, o.spin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ps.close()) }()
	var tcp []float64
	rdma, cpu := make([][]float64, len(ps)), make([][]float64, len(ps))
	err = o.turns(func(d time.Duration, counts bool) error {
		t, err := tcpBandwidth(conn, size, d)
		if err != nil {
			return err
		}
		if counts {
			tcp = append(tcp, t)
		}
		for i, p := range ps {
			before, err := p.stack.cpu()
			if err != nil {
				return err
			}
			r, took, err := p.write(ctx, size, d)
			if err != nil {
				return err
			}
			after, err := p.stack.cpu()
			if err != nil {
				return err
			}
			if counts {
				rdma[i] = append(rdma[i], r)
				cpu[i] = append(cpu[i], micros(after-before)/(r*took.Seconds()/(1<<20)))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range ps {
		b := bandwidth{Size: size, RDMA: median(rdma[i]), TCP: median(tcp), CPU: median(cpu[i])}
		b.Ratio = b.RDMA / b.TCP
		found = append(found, b)
	}
	return found, nil
}

// write keeps a window of RC WRITEs outstanding for a while and returns bytes
// per second until the last is acknowledged, and how long that took.
func (p *pair) write(ctx context.Context, size int, d time.Duration) (rate float64, took time.Duration, err error) {
	depth := min(max(window/size, 4), queueDepth/2)
	slots := bandwidthMemory / size
	sges := make([]verbs.SGE, slots)
	for i := range sges {
		sges[i] = p.a.buf.SGE(i*size, size, p.a.mr.Key)
	}
	wrs := make([]verbs.SendWR, 0, depth)
	start := time.Now()
	posted, done := 0, 0
	for time.Since(start) < d || done < posted {
		room := depth - (posted - done)
		if time.Since(start) >= d {
			room = 0
		}
		wrs = wrs[:0]
		for range room {
			slot := posted % slots
			wrs = append(wrs, verbs.SendWR{
				Op: verbs.OpWrite, Flags: verbs.Signaled, SGEs: sges[slot : slot+1],
				RemoteAddr: p.b.buf.VA + uint64(slot*size), RKey: p.b.mr.Key,
			})
			posted++
		}
		if len(wrs) > 0 {
			if err := p.a.qp.PostSend(wrs...); err != nil {
				return 0, 0, err
			}
		}
		n, err := p.await(ctx, &p.a)
		if err != nil {
			return 0, 0, err
		}
		done += n
	}
	took = time.Since(start)
	return float64(done*size) / took.Seconds(), took, nil
}

func measureLatency(ctx context.Context, stacks []*stack, o options) (found []latency, err error) {
	conn, err := dialTCP(ctx, tcpEcho)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	ps, err := newPairs(stacks, 4096, o.spin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ps.close()) }()
	for _, p := range ps {
		if err := errors.Join(p.postReceives(&p.b, queueDepth/2), p.postReceives(&p.a, queueDepth/2)); err != nil {
			return nil, err
		}
	}
	var tcp []quantiles
	send, ping, cpu := make([][]quantiles, len(ps)), make([][]quantiles, len(ps)), make([][]float64, len(ps))
	err = o.turns(func(d time.Duration, counts bool) error {
		t, err := tcpPing(conn, d)
		if err != nil {
			return err
		}
		if counts {
			tcp = append(tcp, quantilesOf(t))
		}
		for i, p := range ps {
			before, err := p.stack.cpu()
			if err != nil {
				return err
			}
			r, err := p.sendLatency(ctx, d)
			if err != nil {
				return err
			}
			after, err := p.stack.cpu()
			if err != nil {
				return err
			}
			g, err := p.pingPong(ctx, d)
			if err != nil {
				return err
			}
			if counts {
				send[i], ping[i] = append(send[i], quantilesOf(r)), append(ping[i], quantilesOf(g))
				cpu[i] = append(cpu[i], micros(after-before)/float64(max(len(r), 1)))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range ps {
		found = append(found, latency{TCP: medianQuantiles(tcp), Send: medianQuantiles(send[i]), PingPong: medianQuantiles(ping[i]), CPU: median(cpu[i])})
	}
	return found, nil
}

func (p *pair) postReceives(s *side, n int) error {
	for range n {
		if err := s.qp.PostRecv(verbs.RecvWR{ID: recvID, SGEs: []verbs.SGE{s.buf.SGE(0, pingSize, s.mr.Key)}}); err != nil {
			return err
		}
	}
	return nil
}

// recvID marks receive completions; sends have id 0.
const recvID = 1

// sendOne posts a 64-byte inline SEND.
func (s *side) sendOne(data []byte) error {
	return s.qp.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signaled | verbs.Inline, Data: data})
}

// sendLatency measures from the post of a SEND to its completion. The receiver
// is refilled between the measurements.
func (p *pair) sendLatency(ctx context.Context, d time.Duration) ([]time.Duration, error) {
	data := make([]byte, pingSize)
	var out []time.Duration
	for start := time.Now(); time.Since(start) < d; {
		t := time.Now()
		if err := p.a.sendOne(data); err != nil {
			return nil, err
		}
		if _, err := p.await(ctx, &p.a); err != nil {
			return nil, err
		}
		out = append(out, time.Since(t))
		n, err := p.await(ctx, &p.b)
		if err != nil {
			return nil, err
		}
		if err := p.postReceives(&p.b, n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pingPong measures round trips of two SENDs.
func (p *pair) pingPong(ctx context.Context, d time.Duration) ([]time.Duration, error) {
	data := make([]byte, pingSize)
	var out []time.Duration
	for start := time.Now(); time.Since(start) < d; {
		t := time.Now()
		if err := p.a.sendOne(data); err != nil {
			return nil, err
		}
		if err := p.awaitReceive(ctx, &p.b); err != nil {
			return nil, err
		}
		// b's answer is posted before a has seen its own completion.
		if err := p.b.sendOne(data); err != nil {
			return nil, err
		}
		if err := p.awaitReceive(ctx, &p.a); err != nil {
			return nil, err
		}
		out = append(out, time.Since(t))
		// Completions of the sends that are still out.
		if err := p.settle(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// awaitReceive polls a side until a message came, and counts send completions
// that come along.
func (p *pair) awaitReceive(ctx context.Context, s *side) error {
	for {
		n, err := p.await(ctx, s)
		if err != nil {
			return err
		}
		got := false
		for _, w := range s.wc[:n] {
			if w.ID == recvID {
				got = true
			} else {
				s.sent++
			}
		}
		if got {
			return p.postReceives(s, 1)
		}
	}
}

// settle waits for the completion of one send of each side.
func (p *pair) settle(ctx context.Context) error {
	for _, s := range []*side{&p.a, &p.b} {
		for s.sent == 0 {
			n, err := p.await(ctx, s)
			if err != nil {
				return err
			}
			s.sent += n
		}
		s.sent = 0
	}
	return nil
}

// measureMessages counts 64-byte SENDs with a full queue.
func measureMessages(ctx context.Context, stacks []*stack, o options) (found []messages, err error) {
	ps, err := newPairs(stacks, 4096, o.spin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ps.close()) }()
	rates, cpu := make([][]float64, len(ps)), make([][]float64, len(ps))
	err = o.turns(func(d time.Duration, counts bool) error {
		for i, p := range ps {
			before, err := p.stack.cpu()
			if err != nil {
				return err
			}
			n, took, err := p.stream(ctx, d)
			if err != nil {
				return err
			}
			after, err := p.stack.cpu()
			if err != nil {
				return err
			}
			if counts {
				rates[i] = append(rates[i], float64(n)/took.Seconds())
				cpu[i] = append(cpu[i], micros(after-before)/float64(max(n, 1)))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range ps {
		found = append(found, messages{PerSecond: median(rates[i]), CPU: median(cpu[i])})
	}
	return found, nil
}

const streamBatch = 32

// stream sends batches of SENDs, the last of each signaled, for a while.
func (p *pair) stream(ctx context.Context, d time.Duration) (n int, took time.Duration, err error) {
	data := make([]byte, pingSize)
	batch := make([]verbs.SendWR, streamBatch)
	for i := range batch {
		batch[i] = verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Inline, Data: data}
	}
	batch[streamBatch-1].Flags |= verbs.Signaled
	recvs := make([]verbs.RecvWR, streamBatch)
	sge := []verbs.SGE{p.b.buf.SGE(0, pingSize, p.b.mr.Key)}
	for i := range recvs {
		recvs[i] = verbs.RecvWR{ID: recvID, SGEs: sge}
	}
	const most = queueDepth / 2 / streamBatch
	start := time.Now()
	posted, acked, received := 0, 0, 0
	for time.Since(start) < d || acked < posted || received < posted*streamBatch {
		for ; p.b.receives+streamBatch <= queueDepth/2; p.b.receives += streamBatch {
			if err := p.b.qp.PostRecv(recvs...); err != nil {
				return 0, 0, err
			}
		}
		for posted-acked < most-1 && time.Since(start) < d {
			if err := p.a.qp.PostSend(batch...); err != nil {
				return 0, 0, err
			}
			posted++
		}
		if received < posted*streamBatch {
			m, err := p.await(ctx, &p.b)
			if err != nil {
				return 0, 0, err
			}
			received += m
			p.b.receives -= m
		}
		m, err := p.a.cq.Poll(p.a.wc)
		if err != nil {
			return 0, 0, err
		}
		acked += m
	}
	return received, time.Since(start), nil
}
