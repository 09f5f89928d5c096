// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/rs/zerolog"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// cables joins members, and can be split into two halves.
type cables struct {
	network memberlist.MockNetwork

	mu    sync.Mutex // guards what follows
	side  map[string]int
	split bool
}

// plug is a member's end of the cables.
type plug struct {
	*memberlist.MockTransport
	cables *cables
	own    string
}

var errSplit = errors.New("the network is split")

func (c *cables) member(t *testing.T, tr *memberlist.MockTransport, n byte, side int) *Pool {
	t.Helper()
	ip, port, err := tr.FinalAdvertiseAddr("", 0)
	if err != nil {
		t.Fatal(err)
	}
	own := net.JoinHostPort(ip.String(), fmt.Sprint(port))
	c.mu.Lock()
	c.side[own] = side
	c.mu.Unlock()
	p, err := Start(Config{
		Listen: own, Instance: [16]byte{n}, Fast: true, Log: zerolog.Nop(), transport: &plug{tr, c, own},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func (c *cables) set(split bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.split = split
}

func (p *plug) cut(to string) bool {
	p.cables.mu.Lock()
	defer p.cables.mu.Unlock()
	return p.cables.split && p.cables.side[p.own] != p.cables.side[to]
}

func (p *plug) WriteTo(b []byte, addr string) (time.Time, error) {
	return p.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (p *plug) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if p.cut(a.Addr) {
		return time.Now(), nil // lost on the way
	}
	// It waits for the other side to take the datagram, which may be waiting for this one: a network does not.
	datagram := slices.Clone(b)
	go func() { _, _ = p.MockTransport.WriteTo(datagram, a.Addr) }()
	return time.Now(), nil
}

func (p *plug) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return p.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (p *plug) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if p.cut(a.Addr) {
		return nil, errSplit
	}
	return p.MockTransport.DialTimeout(a.Addr, timeout)
}

// TestH7_APoolThatWasSplitBecomesOneAgain splits four members into halves that give each other up. None of them is the
// manager, and nobody joins anybody.
func TestH7_APoolThatWasSplitBecomesOneAgain(t *testing.T) {
	c := &cables{side: make(map[string]int)}
	var all []*Pool
	var ends []*memberlist.MockTransport
	for n := range 4 {
		ends = append(ends, c.network.NewTransport(fmt.Sprint(n)))
	}
	for n, end := range ends {
		p := c.member(t, end, byte(n+1), n/2)
		if n > 0 {
			joins(t, p, all[0])
		}
		all = append(all, p)
	}
	whole := func(size int) func() bool {
		return func() bool {
			for _, p := range all {
				if p.Len() != size {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "the pool", whole(4))
	c.set(true)
	t.Logf("two halves after %s", eventually(t, "two halves", whole(2)))
	all[0].Say(&ernicv1.GossipRecord{NodeId: 1, Address: "h1:2"})
	c.set(false)
	t.Logf("one again after %s", eventually(t, "one pool", whole(4)))
	eventually(t, "what was said meanwhile", func() bool { return heard(all[3], 1).GetAddress() == "h1:2" })
}
