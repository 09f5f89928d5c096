// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver"
	"github.com/ernic-dev/ernic/device/ionic/driver/guest"
	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/worker"
)

// station is a guest whose netdev is up on the switch of the mesh.
type station struct {
	t     testing.TB
	guest *guest.Guest
	in    chan driver.Packet
}

// startLAN runs worker number n with its LIF on the mesh.
func startLAN(t testing.TB, n int, managerAddr string, offloads bool) *node {
	t.Helper()
	p, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	if offloads {
		must(t, p.Set("link.offloads", "on"))
	}
	nd := &node{t: t, socket: filepath.Join(t.TempDir(), fmt.Sprintf("l%d.sock", n)), mac: [6]byte{0x02, 0xe3, 0, 0, 0, byte(n)}}
	w, err := worker.New(worker.Config{
		Name: fmt.Sprintf("l%d", n), Socket: nd.socket, MAC: nd.mac, Profile: p, LIF: worker.LIFMesh,
		Fabric: worker.FabricMesh, Manager: managerAddr, Instance: [16]byte{2, byte(n)},
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, fmt.Sprintf("l%d", n), w.Run)
	return nd
}

// plug boots a guest on a node and brings its netdev up with an MTU.
func plug(n *node, mtu int) *station {
	n.t.Helper()
	g := n.boot(guest.Options{Memory: 256 << 20, Driver: driver.Options{MTU: mtu}})
	s := &station{t: n.t, guest: g, in: make(chan driver.Packet, 4096)}
	g.NIC.OnReceive(func(p driver.Packet) { s.in <- p })
	must(n.t, g.NIC.Up(2, 1024))
	s.carrier(true)
	return s
}

// carrier waits for the carrier to come or go.
func (s *station) carrier(up bool) {
	s.t.Helper()
	limit := time.Now().Add(patience)
	for s.guest.NIC.LinkUp() != up {
		if time.Now().After(limit) {
			s.t.Fatalf("the carrier did not become %v", up)
		}
		time.Sleep(time.Millisecond)
	}
	if up {
		must(s.t, s.guest.NIC.EnableQueues())
	}
}

func (s *station) send(f []byte) {
	s.t.Helper()
	must(s.t, s.guest.NIC.Transmit(0, driver.TxFrame{Data: f}))
}

// next returns the next frame for this guest alone.
func (s *station) next() []byte {
	s.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case p := <-s.in:
			if [6]byte(p.Data) != toAll {
				return p.Data
			}
		case <-limit:
			s.t.Fatal("no frame came")
		}
	}
}

// nothing checks that no frame for one guest has come by now.
func (s *station) nothing(why string) {
	s.t.Helper()
	for {
		select {
		case p := <-s.in:
			if [6]byte(p.Data) != toAll {
				s.t.Errorf("%s: a frame of %d bytes for %x came", why, len(p.Data), p.Data[:6])
			}
		default:
			return
		}
	}
}

var toAll = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func etherFrame(dst, src [6]byte, size int, mark byte) []byte {
	f := append(append([]byte{}, dst[:]...), src[:]...)
	f = append(f, 0x88, 0xb5)
	for len(f) < size {
		f = append(f, mark)
	}
	return f
}

func (s *station) expect(f []byte) {
	s.t.Helper()
	if got := s.next(); !bytes.Equal(got, f) {
		s.t.Fatalf("%d bytes came as %d: %x", len(f), len(got), got[:min(len(got), 20)])
	}
}

// Three guests on three workers are one Ethernet segment without anything on the
// host: broadcasts reach all, unicasts the one.
func TestLAN_GuestsShareASegment(t *testing.T) {
	m := startManager(t)
	var nodes []*node
	var guests []*station
	for n := range 3 {
		nodes = append(nodes, startLAN(t, n+1, m, n == 0))
	}
	for _, n := range nodes {
		guests = append(guests, plug(n, 9000))
	}
	a, b, c := guests[0], guests[1], guests[2]
	// Each worker knows the others when their broadcasts arrive everywhere.
	for i, s := range guests {
		for j, r := range guests {
			if i != j {
				r.reach(s, nodes[i].mac, byte(i))
			}
		}
	}
	for _, size := range []int{60, 1514, 9014} {
		f := etherFrame(nodes[1].mac, nodes[0].mac, size, 0x5a)
		a.send(f)
		b.expect(f)
		f = etherFrame(nodes[0].mac, nodes[1].mac, size, 0xa5)
		b.send(f)
		a.expect(f)
	}
	for i := range 500 {
		b.send(etherFrame(nodes[2].mac, nodes[1].mac, 60+i, byte(i)))
	}
	for i := range 500 {
		c.expect(etherFrame(nodes[2].mac, nodes[1].mac, 60+i, byte(i)))
	}
	a.nothing("a frame from b to c")
}

// reach waits until broadcasts of from arrive.
func (s *station) reach(from *station, mac [6]byte, mark byte) {
	s.t.Helper()
	f := etherFrame(toAll, mac, 64, mark)
	limit := time.After(patience)
	for {
		from.send(f)
		select {
		case p := <-s.in:
			if bytes.Equal(p.Data, f) {
				return
			}
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			s.t.Fatal("the guests do not reach each other")
		}
	}
}

// A TCP packet of 60 KB crosses whole and is cut for a guest that asked for no
// offloads.
func TestLAN_LargePacketsArriveAsSegments(t *testing.T) {
	m := startManager(t)
	na, nb := startLAN(t, 1, m, true), startLAN(t, 2, m, false)
	a, b := plug(na, 1500), plug(nb, 1500)
	b.reach(a, na.mac, 1)
	const mss, hdr = 1448, 14 + 20 + 32
	payload := make([]byte, 40*mss+100)
	for i := range payload {
		payload[i] = byte(i * 13)
	}
	f := make([]byte, hdr, hdr+len(payload))
	copy(f, nb.mac[:])
	copy(f[6:], na.mac[:])
	copy(f[12:], []byte{8, 0, 0x45})
	f[14+8], f[14+9] = 64, 6
	copy(f[14+12:], []byte{10, 0, 0, 1, 10, 0, 0, 2, 1, 2, 3, 4})
	f[34+12], f[34+13] = 0x80, 0x18
	must(t, a.guest.NIC.Transmit(0, driver.TxFrame{Data: append(f, payload...), HdrLen: hdr, MSS: mss, Fragments: 2}))
	var joined []byte
	for len(joined) < len(payload) {
		s := b.next()
		if n := int(binary.BigEndian.Uint16(s[16:])); n != len(s)-14 {
			t.Fatalf("a segment of %d bytes says %d", len(s)-14, n)
		}
		if seq := binary.BigEndian.Uint32(s[38:]); int(seq) != len(joined) {
			t.Fatalf("segment at %d says %d", len(joined), seq)
		}
		if sum := checksum(s[14:34]); sum != 0xffff {
			t.Fatalf("IPv4 checksum sums to %#x", sum)
		}
		pseudo := append(append([]byte{}, s[26:34]...), 0, 6, byte((len(s)-34)>>8), byte(len(s)-34))
		if sum := checksum(append(pseudo, s[34:]...)); sum != 0xffff {
			t.Fatalf("TCP checksum sums to %#x", sum)
		}
		joined = append(joined, s[hdr:]...)
	}
	if !bytes.Equal(joined, payload) {
		t.Error("the payload changed")
	}
}

// checksum is the internet checksum before it is complemented.
func checksum(b []byte) uint32 {
	var s uint32
	for i := 0; i < len(b); i++ {
		s += uint32(b[i]) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return s
}

// There is no carrier before there is a mesh, and it comes by itself.
func TestLAN_CarrierComesWithTheMesh(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	n := startLAN(t, 1, l.Addr().String(), false)
	g := n.boot(guest.Options{})
	s := &station{t: t, guest: g, in: make(chan driver.Packet, 10)}
	must(t, g.NIC.Up(1, 64))
	if g.NIC.LinkUp() {
		t.Error("there is a carrier without a manager")
	}
	must(t, l.Close())
	mgr, err := manager.New(manager.Config{})
	must(t, err)
	l, err = net.Listen("tcp", l.Addr().String())
	must(t, err)
	background(t, "manager", func(ctx context.Context) error { return mgr.Serve(ctx, l) })
	s.carrier(true)
}
