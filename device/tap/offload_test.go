// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"bytes"
	"encoding/binary"
	"os/exec"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/netport"
)

var be = binary.BigEndian

// bridged makes two TAPs on one bridge.
func bridged(t *testing.T, a, b string) {
	t.Helper()
	name := a + "br"
	ip(t, "link add "+name+" type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
	t.Cleanup(func() { exec.Command("ip", "link", "del", name).Run() })
	ip(t, "link set "+name+" up")
	for _, tap := range []string{a, b} {
		ip(t, "tuntap add dev "+tap+" mode tap")
		t.Cleanup(func() { exec.Command("ip", "link", "del", tap).Run() })
		ip(t, "link set "+tap+" master "+name+" up")
	}
}

func open(t testing.TB, name string, offloads bool) netport.Port {
	t.Helper()
	p, err := Open(name, Options{Offloads: offloads, Log: zerolog.New(zerolog.NewTestWriter(t))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if _, ok := p.(netport.Offloader); ok != offloads {
		t.Fatalf("%s carries unfinished frames: %v, want %v", name, ok, offloads)
	}
	return p
}

// tcpPacket returns a TCP packet of the experimental addresses with n bytes of
// payload, its checksum open.
func tcpPacket(n int) ([]byte, netport.Offload) {
	f := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0)
	f = be.AppendUint16(f, uint16(40+n))
	f = append(f, 0, 1, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2)
	be.PutUint16(f[24:], ^sum(0, f[14:34]))
	f = append(f, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0)
	be.PutUint16(f[50:], sum(uint32(6+20+n), f[26:34]))
	for i := range n {
		f = append(f, byte(i*7))
	}
	return f, netport.Offload{Checksum: true, CsumStart: 34, CsumOffset: 16, Segment: netport.SegmentTCP4, Size: 1400}
}

func sum(s uint32, b []byte) uint16 {
	for i := 0; i < len(b); i++ {
		s += uint32(b[i]) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// takeTCP sends f until packets of it come out of another port, and returns the
// first of them that come together.
func takeTCP(t *testing.T, from, to netport.Port, f []byte, o netport.Offload, want int) (frames [][]byte, offloads []netport.Offload) {
	t.Helper()
	got := make(chan bool)
	go func() {
		defer close(got)
		b := netport.NewBatch(64, netport.MaxOffload+64)
		for len(frames) < want {
			n, err := to.Receive(0, b)
			if err != nil {
				return
			}
			for i := range n {
				if g := b.Frame(i); len(g) > 34 && bytes.Equal(g[26:34], f[26:34]) && len(frames) < want {
					frames, offloads = append(frames, bytes.Clone(g)), append(offloads, *b.Offload(i))
				}
			}
		}
	}()
	limit := time.After(time.Minute)
	for {
		if err := from.(netport.Offloader).SendOffload(0, f, &o); err != nil {
			t.Log(err) // the interface may not be ready yet
		}
		select {
		case <-got:
			return frames, offloads
		case <-limit:
			t.Fatal("no packet came")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// A large packet goes through the host's stack as one, and comes cut where the
// other side takes no such packets, also if it did before.
func TestOffloads_LargePacketsCrossWholeWhereBothSidesCan(t *testing.T) {
	bridged(t, "o0", "o1")
	a := open(t, "o0", true)
	f, o := tcpPacket(30000)

	b := open(t, "o1", true)
	frames, offloads := takeTCP(t, a, b, f, o, 1)
	if !bytes.Equal(frames[0], f) || offloads[0] != o {
		t.Errorf("%d bytes with %+v came as %d with %+v", len(f), o, len(frames[0]), offloads[0])
	}
	f[47] |= 0x80 // CWR
	takeTCP(t, a, b, f, o, 1)
	f[47] &^= 0x80
	b.Close()

	plain := open(t, "o1", false)
	frames, _ = takeTCP(t, a, plain, f, o, 22)
	var payload []byte
	for i, g := range frames {
		if s := sum(uint32(6+len(g)-34), g[26:]); s != 0xffff {
			t.Errorf("segment %d: checksum sums to %#x", i, s)
		}
		payload = append(payload, g[54:]...)
	}
	if !bytes.Equal(payload, f[54:]) {
		t.Errorf("%d bytes came out of 30000, or others", len(payload))
	}
}

func TestOffloads_ChecksumIsLeftToTheReceiver(t *testing.T) {
	bridged(t, "o2", "o3")
	a, b := open(t, "o2", true), open(t, "o3", true)
	f, o := tcpPacket(1000)
	o.Segment, o.Size = netport.SegmentNone, 0
	frames, offloads := takeTCP(t, a, b, f, o, 1)
	if !bytes.Equal(frames[0], f) || offloads[0] != o {
		t.Errorf("%d bytes with %+v came as %d with %+v", len(f), o, len(frames[0]), offloads[0])
	}
	// A frame that is finished stays so.
	be.PutUint16(f[50:], 0)
	be.PutUint16(f[50:], ^sum(uint32(6+len(f)-34), f[26:]))
	be.PutUint16(f[30:], 0xc613) // another address, so that no frame of before is taken for it
	be.PutUint16(f[24:], 0)
	be.PutUint16(f[24:], ^sum(0, f[14:34]))
	frames, offloads = takeTCP(t, a, b, f, netport.Offload{}, 1)
	if !bytes.Equal(frames[0], f) || !offloads[0].None() {
		t.Errorf("a finished frame came with %+v", offloads[0])
	}
}

func TestOffloads_WithSeveralQueues(t *testing.T) {
	newTAP(t, "o4", "multi_queue")
	p, err := Open("o4", Options{Queues: 3, Offloads: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Queues() != 3 {
		t.Fatalf("%d queues", p.Queues())
	}
	for q := range 3 {
		exchange(t, p, q)
	}
}

func TestOpen_AsManyQueuesAsTheInterfaceHas(t *testing.T) {
	newTAP(t, "o5", "")
	newTAP(t, "o6", "multi_queue")
	for _, tc := range []struct {
		name        string
		asked, want int
	}{{"o5", 1, 1}, {"o5", 4, 1}, {"o6", 1, 1}, {"o6", 4, 4}} {
		for _, offloads := range []bool{false, true} {
			p, err := Open(tc.name, Options{Queues: tc.asked, Offloads: offloads})
			if err != nil {
				t.Fatal(err)
			}
			if p.Queues() != tc.want {
				t.Errorf("%s: %d queues of %d, want %d", tc.name, p.Queues(), tc.asked, tc.want)
			}
			p.Close()
		}
	}
}

func TestSendOffload_DoesNotAllocate(t *testing.T) {
	newTAP(t, "o7", "")
	p := open(t, "o7", true).(netport.Offloader)
	f, o := tcpPacket(30000)
	if n := testing.AllocsPerRun(100, func() {
		if err := p.SendOffload(0, f, &o); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}

func TestHeader_SaysTheSameBack(t *testing.T) {
	f, o := tcpPacket(5000)
	six := o
	six.Segment = netport.SegmentTCP6
	for _, want := range []netport.Offload{{}, {Checksum: true, CsumStart: 34, CsumOffset: 6}, o, six} {
		var b [headerLen]byte
		encode(&b, f, &want)
		if got := decode(b[:]); got != want {
			t.Errorf("%+v is read back as %+v", want, got)
		}
	}
}

func FuzzHeader(f *testing.F) {
	var b [headerLen]byte
	frame, o := tcpPacket(100)
	encode(&b, frame, &o)
	f.Add(b[:], frame)
	f.Add([]byte{1, 0x84, 0xff}, []byte{})
	f.Add([]byte{1, 3, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff}, []byte{1})
	f.Fuzz(func(t *testing.T, header, frame []byte) {
		o := decode(header)
		if o.Segment > netport.SegmentTCP6 && o.Segment != unknownSegmentation {
			t.Fatalf("segmentation %d", o.Segment)
		}
		var b [headerLen]byte
		encode(&b, frame, &o)
		if again := decode(b[:]); o.Checksum && o.Segment != unknownSegmentation && again != o {
			t.Fatalf("%+v is read back as %+v", o, again)
		}
	})
}
