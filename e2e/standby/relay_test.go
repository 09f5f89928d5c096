// SPDX-License-Identifier: Apache-2.0

package standby

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/ernic-dev/ernic/e2e/verdict"
	"github.com/ernic-dev/ernic/manager/etcd/etcdtest"
)

type link struct {
	Node, Peer int
	State      string
	Relayed    bool
}

// door is an address at which a worker says that it is reached, and where nobody is until it is opened.
type door struct {
	t       *verdict.T
	outside string
	inside  string // where the worker listens
}

func newDoor(t *verdict.T) *door {
	return &door{t, etcdtest.Address(7000), etcdtest.Address(7000)}
}

func (d *door) flags() []string { return []string{"--listen", d.inside, "--advertise", d.outside} }

// open lets connections through.
func (d *door) open() {
	d.t.Helper()
	l, err := net.Listen("tcp", d.outside)
	d.t.Must(err)
	d.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", d.inside)
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
					_ = way[1].Close()
				}()
			}
		}
	}()
}

// TestP2_TheManagerRelaysWhereNoDirectLinkIsPossible has two workers which nobody reaches where they say that they are.
func TestP2_TheManagerRelaysWhereNoDirectLinkIsPossible(tt *testing.T) {
	t := verdict.New(tt)
	s := newLone(t)
	d1, d2 := newDoor(t), newDoor(t)
	sa, ga := s.worker(1, d1.flags()...)
	sb, gb := s.worker(2, d2.flags()...)
	tr := startTraffic(t, boot(t, sa, ga), boot(t, sb, gb))
	tr.proceed(20)

	// relayed reports whether both ends say of their link, which is up, that it is relayed, or that it is not.
	relayed := func(want bool) bool {
		t.Helper()
		links, ok := ask[link](t, "links", "--manager", s.both())
		if !ok || len(links) != 2 {
			return false
		}
		for _, l := range links {
			if l.State != "up" || l.Relayed != want {
				return false
			}
		}
		return true
	}
	t.Logf("operators see it after %s", t.Eventually("a relayed link", func() bool { return relayed(true) }))
	t.Eventually("a list of two nodes with relayed links", func() bool {
		out, _, err := ctl("nodes", "--manager", s.both())
		return err == nil && strings.Count(string(out), "1 (1 relayed)") == 2
	})

	// Without the manager there is no way; the connection waits for it, and nothing is lost.
	s.managers["a"].End(syscall.SIGKILL)
	s.start("a")
	tr.proceed(20)
	t.Eventually("a relayed link again", func() bool { return relayed(true) })

	// The one that dials finds the direct way open, and takes it.
	d1.open()
	d2.open()
	t.Logf("direct %s after the way was open", t.Eventually("a direct link", func() bool { return relayed(false) }))
	tr.slowest()
	tr.proceed(20)
	t.Logf("the longest exchange took %s", tr.slowest())
	s.managers["a"].End(syscall.SIGKILL)
	tr.proceed(20)
}
