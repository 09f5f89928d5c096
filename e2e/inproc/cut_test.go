// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver/guest"
	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

// proxy carries the connections of a worker's peers and can cut them.
type proxy struct {
	listener net.Listener

	mu    sync.Mutex // guards what follows
	conns map[net.Conn]struct{}
	shut  bool // refuses connections
	carry sync.WaitGroup
}

// newProxy returns a proxy whose peers wait until it is started.
func newProxy(t *testing.T) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: l, conns: make(map[net.Conn]struct{})}
	t.Cleanup(func() {
		l.Close()
		p.cut(true)
		p.carry.Wait()
	})
	return p
}

// start carries what comes, and has come, to target.
func (p *proxy) start(target string) { p.carry.Go(func() { p.accept(target) }) }

func (p *proxy) accept(target string) {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", target)
		if err != nil || !p.add(near, far) {
			near.Close()
			continue
		}
		for _, c := range [][2]net.Conn{{near, far}, {far, near}} {
			p.carry.Go(func() {
				io.Copy(c[0], c[1])
				p.drop(near, far)
			})
		}
	}
}

// add notes the two ends of a carried connection, unless the proxy is shut.
func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.shut {
			c.Close()
			continue
		}
		p.conns[c] = struct{}{}
	}
	return !p.shut
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.conns, c)
	}
}

// cut ends all connections and returns how many ends there were; shut says
// whether new ones are refused from here on.
func (p *proxy) cut(shut bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = shut
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
		n++
	}
	return n
}

// cutTopology is two nodes whose link goes through a proxy.
func cutTopology(t *testing.T) (a, b *end, p *proxy) {
	t.Helper()
	m := startManager(t)
	// The node with the lower id dials, so the proxy stands before the second.
	p = newProxy(t)
	na := startNode(t, 1, m)
	ga := na.boot(guest.Options{})
	nb := startNodeAt(t, 2, m, p.listener.Addr().String())
	p.start(nb.fabric)
	gb := nb.boot(guest.Options{})
	return newEnd(t, na, ga, false, na.addr), newEnd(t, nb, gb, false, nb.addr), p
}

// patient gives a link about 17 seconds to come back, 4.096 us * 2^19 * 8: the
// pauses between attempts to dial grow with each cut, up to five seconds.
var patient = verbs.ConnectOptions{Timeout: 19, Retry: 7}

// Every message arrives once and in order, whatever becomes of the connections.
func TestP7_ReliableTrafficSurvivesCutLinks(t *testing.T) {
	a, b, p := cutTopology(t)
	qa, qb := connected(a, b, verbs.RC, patient)
	const size, burst, total = 30000, 24, 24 * 7
	ma, mb := a.mr(burst*size, verbs.LocalWrite), b.mr(burst*size, anyAccess)
	counterMR, old := b.mr(8, anyAccess), a.mr(8*burst, verbs.LocalWrite)
	cuts := 0
	for base := 0; base < total; base += burst {
		for i := range burst {
			ma.Buffer.Write(i*size, pattern(size, base+i))
			must(t, qb.PostRecv(verbs.RecvWR{ID: uint64(base + i), SGEs: []verbs.SGE{mb.Buffer.SGE(i*size, size, mb.Key)}}))
			must(t, qa.PostSend(
				verbs.SendWR{ID: uint64(base + i), Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(i*size, size, ma.Key)}},
				verbs.SendWR{ID: 1 << 40, Op: verbs.OpFetchAdd, Flags: verbs.Signaled, SGEs: []verbs.SGE{old.Buffer.SGE(8*i, 8, old.Key)},
					RemoteAddr: counterMR.Buffer.VA, RKey: counterMR.Key, Swap: 1}))
		}
		// A peer that is lost again and again is dialled less and less often, so
		// each burst is cut once.
		time.Sleep(time.Duration(base/burst) * 300 * time.Microsecond)
		cuts += p.cut(false)
		a.want(2 * burst) // first, because it is the sender who is told of a failure
		for i, w := range b.want(burst) {
			if w.ID != uint64(base+i) || w.Len != size {
				t.Fatalf("receive %d is %+v", base+i, w)
			}
		}
		for i := range burst {
			if !bytes.Equal(mb.Buffer.Read(i*size, size), pattern(size, base+i)) {
				t.Fatalf("message %d: payload differs", base+i)
			}
			// An atomic that was executed twice would leave a gap.
			if v := old.Buffer.Load64(8 * i); v != uint64(base+i) {
				t.Fatalf("atomic %d found %d", base+i, v)
			}
		}
	}
	if cuts == 0 {
		t.Error("no connection was cut")
	}
}

// A link that stays away uses up the guest's retries, and a new queue pair works
// when it is back.
func TestP7_LinkThatStaysAwayExceedsRetries(t *testing.T) {
	a, b, p := cutTopology(t)
	sendOnce(t, a, b)
	qa, _ := connected(a, b, verbs.RC, quickly)
	if p.cut(true) == 0 {
		t.Error("no connection was cut")
	}
	must(t, qa.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte{1}, RKey: 1}))
	if w := a.poll(1)[0]; w.Status != verbs.RetryExceeded {
		t.Errorf("completion %v, want %v", w.Status, verbs.RetryExceeded)
	}
	p.cut(false)
	qa, qb := connected(a, b, verbs.RC, patient)
	must(t, qb.PostRecv(verbs.RecvWR{}))
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signaled}))
	b.want(1)
	a.want(1)
}
