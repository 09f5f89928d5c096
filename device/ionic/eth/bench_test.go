// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
	"github.com/ernic-dev/ernic/device/netport"
)

// sink is a port that takes every frame and never brings one.
type sink struct {
	closed chan struct{}
	frames chan []byte
}

func (s *sink) Name() string           { return "sink" }
func (s *sink) Queues() int            { return 1 }
func (s *sink) Send(int, []byte) error { return nil }
func (s *sink) Close() error           { close(s.closed); return nil }

// offloadSink is a sink that takes frames with work left in them.
type offloadSink struct{ *sink }

func (offloadSink) SendOffload(int, []byte, *netport.Offload) error { return nil }

// Receive gives a frame over the largest to be cut.
func (s offloadSink) Receive(q int, b *netport.Batch) (int, error) {
	n, err := s.sink.Receive(q, b)
	for i := range n {
		if f := b.Frame(i); len(f) > 9216 {
			b.Set(i, f, netport.Offload{Checksum: true, CsumStart: 34, CsumOffset: 16, Segment: netport.SegmentTCP4, Size: 1448})
		}
	}
	return min(n, 1), err
}

// BenchmarkOffload moves packets of 64 KiB whole: out of the guest in 45
// descriptors, and into its buffers as 45 frames.
func BenchmarkOffload(b *testing.B) {
	hdr, payload := tcpHeader(false, 1, 0x10), make([]byte, 45*1448)
	b.Run("transmit", func(b *testing.B) {
		s := newSink()
		r := newRig(b, func(c *eth.Config) { c.Port, c.Offload = offloadSink{s}, eth.AllOffloads })
		r.Probe(eth.AllOffloads)
		r.Up(1, 7, 1500)
		p := r.Pairs[0]
		b.SetBytes(int64(len(payload)))
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			tso(p, hdr, payload, 1448, 0, 0)
			b.StartTimer()
			p.RingTx()
			for p.Outstanding() > 0 {
				p.Retire()
			}
		}
	})
	b.Run("receive", func(b *testing.B) {
		s := newSink()
		r := newRig(b, func(c *eth.Config) { c.Port, c.Offload = offloadSink{s}, eth.AllOffloads })
		r.Probe(eth.AllOffloads)
		r.Up(1, 10, 1500)
		r.MustAdmin(ethtest.RxMode(abi.RxModePromisc))
		f := append(append([]byte{}, hdr...), payload...)
		index := uint16(1023)
		b.SetBytes(int64(len(payload)))
		b.ReportAllocs()
		for b.Loop() {
			s.frames <- f
			index = (index + 45) & 1023
			r.lif.Doorbell(abi.QTypeRx, abi.MakeDoorbell(0, index))
		}
	})
}

// Receive repeats the frame it is given for as long as asked.
func (s *sink) Receive(_ int, b *netport.Batch) (int, error) {
	select {
	case <-s.closed:
		return 0, netport.ErrClosed
	case f := <-s.frames:
		for i := range b.Len() {
			b.SetLen(i, copy(b.Buffer(i), f))
		}
		return b.Len(), nil
	}
}

func newSink() *sink { return &sink{closed: make(chan struct{}), frames: make(chan []byte)} }

func benchRig(b *testing.B, features abi.Features) (*rig, *sink) {
	s := newSink()
	r := newRig(b, func(c *eth.Config) { c.Port, c.Offload = s, features })
	r.Probe(features)
	r.Up(1, 10, 1500)
	return r, s
}

func BenchmarkTransmit(b *testing.B) {
	for _, bc := range []struct {
		name     string
		size     int
		features abi.Features
		tx       ethtest.Tx
	}{
		{"60", 60, 0, ethtest.Tx{}},
		{"1514", 1514, 0, ethtest.Tx{}},
		{"1514csum", 1514, eth.AllOffloads, ethtest.Tx{Op: abi.TxCsumPartial, CsumStart: 34, CsumOffset: 6}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			r, _ := benchRig(b, bc.features)
			p := r.Pairs[0]
			bc.tx.Pieces = [][]byte{udp4(station, peer, bc.size)}
			const burst = 64
			for range 1023 { // the ring is full of the same descriptor
				p.Post(bc.tx)
			}
			p.RingTx()
			p.AwaitTx()
			p.Post(bc.tx)
			index := uint16(0)
			b.SetBytes(int64(bc.size))
			b.ReportAllocs()
			b.ResetTimer()
			sent := r.lifStat(abi.TxUcastPackets)
			for n := 0; n < b.N; n += burst {
				index = (index + burst - 1) & 1023
				r.lif.Doorbell(abi.QTypeTx, abi.MakeDoorbell(0, index))
				for {
					now := r.lifStat(abi.TxUcastPackets)
					if now >= sent+burst-1 {
						sent = now
						break
					}
					time.Sleep(time.Microsecond)
				}
			}
		})
	}
}

func BenchmarkReceive(b *testing.B) {
	for _, bc := range []struct {
		name     string
		size     int
		features abi.Features
	}{{"60", 60, 0}, {"1514", 1514, 0}, {"1514csum", 1514, eth.AllOffloads}} {
		b.Run(bc.name, func(b *testing.B) {
			r, s := benchRig(b, bc.features)
			f := udp4(peer, station, bc.size)
			index := uint16(1023)
			b.SetBytes(int64(bc.size))
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += 32 {
				index = (index + 32) & 1023
				s.frames <- f
				r.lif.Doorbell(abi.QTypeRx, abi.MakeDoorbell(0, index))
			}
			b.StopTimer()
			if e := r.lifStat(abi.RxQueueEmpty); e > uint64(b.N/10)+2000 {
				b.Fatalf("%d of %d frames found no buffer", e, b.N)
			}
		})
	}
}

func BenchmarkDoorbell(b *testing.B) {
	r, _ := benchRig(b, 0)
	b.ReportAllocs()
	for b.Loop() {
		r.lif.Doorbell(abi.QTypeRx, abi.MakeDoorbell(0, 5))
	}
}
