// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// A member that gets another address is the member it was, with what it says of itself, and goes on saying more.
func TestMove_TheMemberStaysWhoItIs(t *testing.T) {
	a := member(t, 1, nil, nil)
	b := member(t, 2, nil, a)
	p, err := Start(Config{Listen: "0.0.0.0:0", Advertise: "127.0.0.1:0", Instance: [16]byte{9}, Fast: true, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	joins(t, p, a)
	p.Say(&ernicv1.GossipRecord{NodeId: 9, Gids: gids(1)})
	all := []*Pool{a, b}
	for _, o := range all {
		eventually(t, "the first record", func() bool { return len(heard(o, 9).GetGids()) == 1 })
	}
	for i, host := range []string{"127.0.0.2", "127.0.0.3"} {
		if err := p.Move(host); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(p.Addr(), host+":") {
			t.Fatalf("it is at %s, want %s", p.Addr(), host)
		}
		p.Say(&ernicv1.GossipRecord{NodeId: 9, Gids: gids(2 + i)})
		for _, o := range all {
			eventually(t, "the member at "+host+" with what it says", func() bool {
				o.mu.Lock()
				n := o.members[[16]byte{9}]
				at := n != nil && n.Addr.String() == host
				o.mu.Unlock()
				_, gone := o.Gone()[[16]byte{9}]
				return at && !gone && len(heard(o, 9).GetGids()) == 2+i && o.Len() == 3
			})
			answers(t, o, 9)
		}
		eventually(t, "a view of all", func() bool { return p.Len() == 3 && len(p.Gone()) == 0 })
	}
	// It is still found dead like any other.
	p.Close()
	for _, o := range all {
		eventually(t, "its death", func() bool {
			_, gone := o.Gone()[[16]byte{9}]
			return gone && o.Len() == 2
		})
	}
}

// A move that ended the old membership and could not begin the new one can be tried again, and does not keep the member
// from leaving.
func TestMove_GoesOnAfterAFailure(t *testing.T) {
	a := member(t, 1, nil, nil)
	for _, again := range []bool{true, false} {
		p, err := Start(Config{Listen: "0.0.0.0:0", Advertise: "127.0.0.1:0", Instance: [16]byte{9}, Fast: true, Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		joins(t, p, a)
		if err := p.list.Load().Shutdown(); err != nil {
			t.Fatal(err)
		}
		p.down.Store(true)
		if again {
			if err := p.Move("127.0.0.2"); err != nil {
				t.Fatal(err)
			}
			answers(t, a, 9)
		}
		if err := p.Leave(time.Minute); err != nil {
			t.Error(err)
		}
	}
}

func TestMove_RefusesWhatCannotBe(t *testing.T) {
	p := member(t, 1, nil, nil)
	for host, want := range map[string]string{"127.0.0.2": "it is on one address", "nowhere.test": "no IP address", "": "no IP address"} {
		if err := p.Move(host); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %q: %v, want an error with %q", host, err, want)
		}
	}
	if p.Len() != 1 || p.Addr() == "" {
		t.Error("it is no member any more")
	}
}
