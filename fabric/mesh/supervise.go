// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/directory"
)

// settle is how long a link must stand before losing it is answered with an
// attempt at once: a peer that accepts only to close is not hammered.
const settle = time.Second

// supervise is the goroutine that makes the link to a peer and, on the dialing
// side, mends it for as long as the peer exists.
//
//	idle --kick--> attempt --ok--> idle
//	                 ^  |
//	                 |  failed: what waits is dropped
//	                 +--pause (backoff, or until nudged)
func (p *peer) supervise() {
	t := p.link.opts.Timing
	b := backoff{least: t.BackoffMin, most: t.BackoffMax}
	var made time.Time // when the last attempt succeeded, zero if it did not
	for {
		select {
		case <-p.kick:
		case <-p.ctx.Done():
			return
		}
		for p.needed() {
			if !made.IsZero() {
				if time.Since(made) > settle {
					b.reset()
				} else {
					p.pause(b.next())
				}
				made = time.Time{}
				continue
			}
			node, ok := p.link.opts.Directory.Node(p.node)
			if !ok {
				break // whoever watches the directory removes the peer
			}
			p.setState(fabric.PeerConnecting)
			switch err := p.attempt(node); {
			case p.ctx.Err() != nil:
				return
			case err == nil:
				made = time.Now()
			case errors.Is(err, errChanged):
				// Where the node really is, it was not tried yet.
			default:
				p.failed(node, err)
				p.pause(b.next())
			}
		}
		p.setState(fabric.PeerIdle)
	}
}

// needed reports whether an attempt to make or mend the link is due. The dialer
// wants all lanes, always; the other side wants those that frames wait for, or
// any if Connect was called.
func (p *peer) needed() bool {
	if p.ctx.Err() != nil || !p.wanted.Load() {
		return false
	}
	waiting := !p.dials() && !p.insisted.Load()
	for _, ln := range *p.lanes.Load() {
		if ln.down(waiting) {
			return true
		}
	}
	return false
}

// errChanged is why an attempt ends when the directory has news of the node.
var errChanged = errors.New("the directory has changed")

// attempt makes one attempt. Nil means that nothing is needed any more.
func (p *peer) attempt(node directory.Node) error {
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	p.mu.Lock()
	p.cancelAttempt = cancel
	p.mu.Unlock()
	if now, _ := p.link.opts.Directory.Node(p.node); now != node {
		return errChanged // before the attempt could be canceled
	}
	ctx, stop := context.WithTimeout(ctx, p.link.opts.Timing.Connect)
	defer stop()
	err := p.establish(ctx, node)
	if err != nil && errors.Is(context.Cause(ctx), errChanged) {
		return errChanged
	}
	return err
}

// establish makes all that is missing, within ctx.
func (p *peer) establish(ctx context.Context, node directory.Node) error {
	if !p.dials() {
		return p.ask(ctx, node)
	}
	down := p.missing()
	if len(down) == 0 {
		return nil
	}
	// One lane alone finds out whether the peer is there at all.
	if err := p.link.dialLane(ctx, down[0], node); err != nil {
		return err
	}
	errs := make([]error, len(down))
	var wg sync.WaitGroup
	for i, ln := range down[1:] {
		wg.Go(func() { errs[i] = p.link.dialLane(ctx, ln, node) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ask asks the peer to dial and waits until it has.
func (p *peer) ask(ctx context.Context, node directory.Node) error {
	if err := p.link.askForLink(ctx, p, node); err != nil {
		return err
	}
	for p.needed() {
		select {
		case <-p.nudge:
		case <-ctx.Done():
			return fmt.Errorf("node %d was asked to dial and did not within %v", p.node, p.link.opts.Timing.Connect)
		}
	}
	return nil
}

// failed accounts for an attempt that failed and drops what waited for it.
func (p *peer) failed(node directory.Node, err error) {
	p.mu.Lock()
	p.base.ConnectFailures++
	p.last = err.Error()
	p.mu.Unlock()
	p.setState(fabric.PeerBackoff)
	for _, ln := range *p.lanes.Load() {
		ln.flush(fabric.DropLinkDown, false)
	}
	p.link.opts.OnEvent(Event{Kind: ConnectFailed, Node: p.node, Address: node.Address, Err: err})
}

// pause waits for d, or until something happened that makes another attempt
// worth it.
func (p *peer) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.nudge:
	case <-p.ctx.Done():
	}
}

func (p *peer) setState(s fabric.PeerState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.up == 0 {
		p.state = s
	}
}

// backoff makes pauses that double and have jitter, so that many nodes do not
// come back in step.
type backoff struct{ least, most, current time.Duration }

func (b *backoff) reset() { b.current = 0 }

// next returns the next pause, between half of and the full nominal value.
func (b *backoff) next() time.Duration {
	b.current = min(max(2*b.current, b.least), b.most)
	half := b.current / 2
	return half + rand.N(b.current-half+1)
}
