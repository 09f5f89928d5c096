// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/netport"
)

// watched tells what a port says of its carrier.
type watched struct {
	t    *testing.T
	said chan string
}

func watch(t *testing.T, p netport.Port) *watched {
	t.Helper()
	w := &watched{t, make(chan string, 100)}
	p.(netport.Carrier).Watch(func(up bool, why string) { w.said <- fmt.Sprint(up, " ", why) })
	return w
}

// until waits for a word; others may come before it.
func (w *watched) until(want string) {
	w.t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case got := <-w.said:
			if got == want {
				return
			}
		case <-limit:
			w.t.Fatalf("the carrier did not become %q", want)
		}
	}
}

func TestWatch_FollowsTheInterface(t *testing.T) {
	newTAP(t, "c0", "")
	p, err := Open("c0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w := watch(t, p)
	w.until("true ")
	ip(t, "link set c0 down")
	w.until("false the interface is down")
	ip(t, "link set c0 up")
	w.until("true ")
	ip(t, "link set c0 carrier off")
	w.until("false the interface has no carrier")
	ip(t, "link set c0 carrier on")
	w.until("true ")

	// The receiving goroutine attaches to the interface when it is there again.
	go func() {
		b := netport.NewBatch(8, 2048)
		for {
			if _, err := p.Receive(0, b); errors.Is(err, netport.ErrClosed) {
				return
			} else if err != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}()
	ip(t, "link del c0")
	w.until("false the interface is gone")
	newTAP(t, "c0", "")
	w.until("true ")
}

// What happens to other interfaces, or to the place of this one in a bridge, is no
// loss of the carrier.
func TestWatch_IsNotMovedByOthers(t *testing.T) {
	bridged(t, "c1", "c2")
	p := open(t, "c1", true)
	open(t, "c2", false)
	w := watch(t, p)
	w.until("true ")
	ip(t, "link set c2 down")
	ip(t, "link set c2 up")
	ip(t, "link set c1 nomaster")
	ip(t, "link del c1br")
	ip(t, "link add c1br type bridge") // for the clean-up
	ip(t, "link set c1 down")
	if got := <-w.said; got != "false the interface is down" {
		t.Errorf("the carrier was %q", got)
	}
}

func TestWatch_EndsWithThePort(t *testing.T) {
	newTAP(t, "c3", "")
	p, err := Open("c3", Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, p)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for len(w.said) > 0 {
		<-w.said
	}
	ip(t, "link set c3 down")
	time.Sleep(50 * time.Millisecond)
	if len(w.said) > 0 {
		t.Errorf("a closed port says %q", <-w.said)
	}
}

// message is a kernel's message about an interface.
func message(typ uint16, family byte, flags uint32, name string) []byte {
	b := make([]byte, 16+ifInfoLen)
	binary.NativeEndian.PutUint16(b[4:], typ)
	b[16] = family
	binary.NativeEndian.PutUint32(b[16+8:], flags)
	attr := func(typ uint16, value []byte) {
		at := len(b)
		b = append(b, make([]byte, (4+len(value)+3)&^3)...)
		binary.NativeEndian.PutUint16(b[at:], uint16(4+len(value)))
		binary.NativeEndian.PutUint16(b[at+2:], typ)
		copy(b[at+4:], value)
	}
	attr(unix.IFLA_MTU, []byte{0, 0, 0, 1})
	attr(unix.IFLA_IFNAME, append([]byte(name), 0))
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

func TestUpdate_ReadsWhatConcernsTheInterface(t *testing.T) {
	up := state{true, true, true}
	both := uint32(unix.IFF_UP | unix.IFF_RUNNING)
	for _, tc := range []struct {
		what string
		msgs [][]byte
		want state
	}{
		{"up", [][]byte{message(unix.RTM_NEWLINK, 0, both, "x")}, up},
		{"no carrier", [][]byte{message(unix.RTM_NEWLINK, 0, unix.IFF_UP, "x")}, state{true, true, false}},
		{"gone", [][]byte{message(unix.RTM_DELLINK, 0, both, "x")}, state{}},
		{"of a bridge", [][]byte{message(unix.RTM_DELLINK, unix.AF_BRIDGE, 0, "x")}, up},
		{"of another", [][]byte{message(unix.RTM_DELLINK, 0, 0, "xy")}, up},
		{"of another kind", [][]byte{message(unix.RTM_NEWADDR, 0, 0, "x")}, up},
		{"the last counts", [][]byte{message(unix.RTM_DELLINK, 0, 0, "x"), message(unix.RTM_NEWLINK, 0, unix.IFF_UP, "x")}, state{true, true, false}},
	} {
		var b []byte
		for _, m := range tc.msgs {
			b = append(b, m...)
		}
		if got := update(b, "x", up); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.what, got, tc.want)
		}
	}
}

func FuzzUpdate(f *testing.F) {
	f.Add(message(unix.RTM_NEWLINK, 0, unix.IFF_UP|unix.IFF_RUNNING, "x"), "x")
	f.Add(message(unix.RTM_DELLINK, 7, 0, "x")[:30], "x")
	f.Add([]byte{40, 0, 0, 0, 16, 0}, "")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		for _, s := range []state{{}, {true, true, true}} {
			if got := update(b, name, s); !got.present && got.up {
				t.Fatalf("%+v became %+v", s, got)
			}
		}
	})
}
