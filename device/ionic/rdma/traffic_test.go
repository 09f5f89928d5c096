// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// twoNodes are two guests on one network, probed, with a connected pair.
func twoNodes(t testing.TB, typ uint8) (a, b *node, pa, pb *pair) {
	f := newFabric()
	a, b = newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
	a.probe()
	b.probe()
	b.ids += 100 // ids that differ show what mixes them up
	pa, pb = a.createQP(qpOptions{typ: typ, stride: 8}), b.createQP(qpOptions{typ: typ, stride: 8})
	pa.connect(pb)
	pb.connect(pa)
	return a, b, pa, pb
}

// cqe formats expected completions; colour 1.
func recvCQE(token uint64, srcQPN uint32, op uint8, imm string, length uint32, id uint32) string {
	var tok [8]byte
	binary.LittleEndian.PutUint64(tok[:], token)
	if imm == "" {
		imm = "00000000"
	}
	return fmt.Sprintf("%x %02x%06x 000000000000 0000 %s %08x %06x21", tok, op, srcQPN, imm, length, id)
}

func msnCQE(msn, id uint32) string {
	return fmt.Sprintf("00000000 %08x 0000000000000000 0000000000000000 00000000 %06x41", msn, id)
}

func npgCQE(index uint16, id uint32) string {
	return fmt.Sprintf("0000000000000000 0000000000000000 %02x%02x000000000000 00000000 %06x61", index&0xff, index>>8, id)
}

func msnErr(msn, id uint32, st qp.Status) string {
	return fmt.Sprintf("00000000 %08x 0000000000000000 0000000000000000 %08x %06x43", msn, uint8(st), id)
}

func npgErr(index uint16, id uint32, st qp.Status) string {
	return fmt.Sprintf("0000000000000000 0000000000000000 %02x%02x000000000000 %08x %06x63", index&0xff, index>>8, uint8(st), id)
}

func recvErr(token uint64, id uint32, st qp.Status) string {
	var tok [8]byte
	binary.LittleEndian.PutUint64(tok[:], token)
	return fmt.Sprintf("%x 0000000000000000 0000000000000000 %08x %06x23", tok, uint8(st), id)
}

// Every operation of a connected QP, with the bytes of its completions and of
// the memory it touches.
func TestConnected_EveryOperation(t *testing.T) {
	for _, typ := range []uint8{abi.TypeRC, abi.TypeUC} {
		bubble(t, func(t *testing.T) {
			a, b, pa, pb := twoNodes(t, typ)
			src, skey := a.region(64<<10, 0, mrAll)
			dst, dkey := b.region(64<<10, 0, mrAll)
			data := a.fill(src, 64<<10, 5)
			msn := uint32(0)

			// SEND into three elements.
			pb.postRecv(0x0123456789ab, sge{dst + 10, 100, dkey}, sge{dst + 1000, 1, dkey}, sge{dst + 2000, 5000, dkey})
			pa.postSend(pa.send(abi.OpSend, sge{src, 3000, skey}, sge{src + 4000, 200, skey}))
			msn++
			a.expect(pa.scq, msnCQE(msn, pa.id))
			b.expect(pb.rcq, recvCQE(0x0123456789ab, pa.id, 0, "", 3200, pb.id))
			want := append(append([]byte(nil), data[:3000]...), data[4000:4200]...)
			if got := append(append(b.ram.Read(dst+10, 100), b.ram.Read(dst+1000, 1)...), b.ram.Read(dst+2000, 3099)...); !bytes.Equal(got, want) {
				t.Fatal("SEND: other bytes arrived")
			}
			if got := b.ram.Read(dst+2000+3099, 10); !bytes.Equal(got, make([]byte, 10)) {
				t.Fatal("SEND: wrote beyond the message")
			}

			// SEND_IMM, inline.
			pb.postRecv(7, sge{dst, 64, dkey})
			w := pa.send(abi.OpSendImm).u32(abi.WQEImm, 0xcafe0001).flag(abi.WQEInline).u32(abi.PayloadLen, 11)
			copy(w.b[abi.Payload:], "inline data")
			pa.postSend(w)
			msn++
			a.expect(pa.scq, msnCQE(msn, pa.id))
			b.expect(pb.rcq, recvCQE(7, pa.id, 2, "cafe0001", 11, pb.id))
			if got := string(b.ram.Read(dst, 11)); got != "inline data" {
				t.Fatalf("inline: %q", got)
			}

			// WRITE and WRITE_IMM.
			pa.postSend(pa.send(abi.OpWrite, sge{src + 100, 20000, skey}).remote(dst+30000, dkey))
			msn++
			a.expect(pa.scq, msnCQE(msn, pa.id))
			if got := b.ram.Read(dst+30000, 20000); !bytes.Equal(got, data[100:20100]) {
				t.Fatal("WRITE: other bytes arrived")
			}
			pb.postRecv(8)
			pa.postSend(pa.send(abi.OpWriteImm, sge{src, 256, skey}).remote(dst+4096, dkey).u32(abi.WQEImm, 0x01020304))
			msn++
			a.expect(pa.scq, msnCQE(msn, pa.id))
			b.expect(pb.rcq, recvCQE(8, pa.id, 3, "01020304", 256, pb.id))

			// Nothing at all.
			pb.postRecv(9)
			pa.postSend(pa.send(abi.OpSend))
			msn++
			a.expect(pa.scq, msnCQE(msn, pa.id))
			b.expect(pb.rcq, recvCQE(9, pa.id, 0, "", 0, pb.id))
			if typ == abi.TypeUC {
				return
			}

			// READ.
			b.fill(dst, 64<<10, 77)
			pa.postSend(pa.send(abi.OpRead, sge{src, 10, skey}, sge{src + 20, 30000, skey}).remote(dst+5, dkey))
			msn++
			a.expect(pa.scq, msnCQE(msn, pa.id))
			if got := append(a.ram.Read(src, 10), a.ram.Read(src+20, 30000)...); !bytes.Equal(got, b.ram.Read(dst+5, 30010)) {
				t.Fatal("READ: other bytes arrived")
			}

			// Atomics.
			b.ram.Store64(dst+8, 1000)
			for i, op := range []uint8{abi.OpAtomicFA, abi.OpAtomicCS, abi.OpAtomicCS} {
				w := pa.send(op).remote(dst+8, dkey).u64(abi.AtomicOperand, 5).u64(abi.AtomicCompare, 1005)
				w.u8(abi.WQENumSGE, 1).u64(abi.AtomicSGE, src+64).u32(abi.AtomicSGE+8, 8).u32(abi.AtomicSGE+12, skey)
				pa.postSend(w)
				msn++
				a.expect(pa.scq, msnCQE(msn, pa.id))
				old, now := []uint64{1000, 1005, 5}[i], []uint64{1005, 5, 5}[i]
				if a.ram.Load64(src+64) != old || b.ram.Load64(dst+8) != now {
					t.Fatalf("atomic %d: returned %d, memory holds %d", i, a.ram.Load64(src+64), b.ram.Load64(dst+8))
				}
			}
		})
	}
}

// Unsignalled work is told by the next signalled completion; its MSN says so.
func TestConnected_UnsignalledWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		for i := range 5 {
			w := pa.send(abi.OpWrite, sge{src, 8, skey}).remote(dst, dkey)
			if i < 4 {
				w.u16(abi.WQEFlags, 0)
			}
			pa.postSend(w)
		}
		a.expect(pa.scq, msnCQE(5, pa.id))
		b.expect(pb.rcq)
	})
}

// The driver takes requests off its queue in order: local work that is complete
// stays there until the messages before it are known to be, signalled or not. A
// message number is told once.
func TestConnected_LocalWorkTellsOfUnsignalledMessagesBeforeIt(t *testing.T) {
	for name, typ := range map[string]uint8{"RC": abi.TypeRC, "UC": abi.TypeUC} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b, pa, pb := twoNodes(t, typ)
				src, skey := a.region(4096, 0, mrAll|abi.MRBind)
				dst, dkey := b.region(4096, 0, mrAll)
				w := a.id()<<8 | 1
				a.must(abi.AdminCreateMR, &abi.CreateMR{ID: w, Flags: abi.MRUserKey | abi.MRWindow})
				write := func() *work { return pa.send(abi.OpWrite, sge{src, 8, skey}).remote(dst, dkey) }
				bind := func() *work {
					return pa.send(abi.OpBindMW).u8(abi.WQENumSGE, 1).u32(abi.WQEImm, w).
						u64(abi.BindVA, src).u64(abi.BindLength, 8).u32(abi.BindParent, skey).u16(abi.BindAccess, abi.MRWindow|abi.MRRemoteRead)
				}
				quiet := func(w *work) *work { return w.u16(abi.WQEFlags, 0) }
				pa.postSend(quiet(write()))
				pa.postSend(quiet(write()))
				a.expect(pa.scq)
				pa.postSend(bind())
				a.expect(pa.scq, msnCQE(2, pa.id), npgCQE(2, pa.id))
				pa.postSend(bind())
				a.expect(pa.scq, npgCQE(3, pa.id))
				pa.postSend(quiet(write()))
				pa.postSend(write())
				pa.postSend(quiet(bind()))
				a.expect(pa.scq, msnCQE(4, pa.id), npgCQE(6, pa.id))
				pa.postSend(bind())
				a.expect(pa.scq, npgCQE(7, pa.id))

				// What a reset forgets is not told later.
				pa.postSend(quiet(write()))
				a.expect(pa.scq)
				for _, p := range []*pair{pa, pb} {
					p.n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 0, ID: p.id})
					p.sqAt, p.rqAt = 0, 0
				}
				pa.connect(pb)
				pb.connect(pa)
				pa.postSend(bind())
				a.expect(pa.scq, npgCQE(0, pa.id))

				// A failure is the local work's own, not the message's before it.
				pa.postSend(quiet(write()))
				pa.postSend(bind().u32(abi.BindParent, skey+1))
				want := []string{msnCQE(1, pa.id), npgErr(2, pa.id, qp.MemMgmtErr), npgErr(0, pa.id, qp.Flushed)}
				if typ == abi.TypeRC {
					want = append(want, recvErr(0, pa.id, qp.Flushed))
				}
				a.expect(pa.scq, want...)
			})
		})
	}
}

// Rings wrap many times, and the kernel's receive tokens, which are not ring
// indices, come back as they were.
func TestConnected_RingsWrap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(1<<20, 0, mrAll)
		for i := range uint64(1000) {
			pb.postRecv(i*31%64, sge{dst + i*64%(1<<20), 64, dkey})
			a.ram.Store64(src, i)
			pa.postSend(pa.send(abi.OpSend, sge{src, 8, skey}))
			a.settle()
			s, ok := a.poll(pa.scq)
			if !ok || s.MSN != uint32(i+1) || s.Error {
				t.Fatalf("send %d completed as %+v", i, s)
			}
			r, ok := b.poll(pb.rcq)
			if !ok || r.WQEID != i*31%64 || r.StatusLength != 8 {
				t.Fatalf("receive %d completed as %+v", i, r)
			}
			if got := b.ram.Load64(dst + i*64%(1<<20)); got != i {
				t.Fatalf("message %d is %d", i, got)
			}
			a.consumed(pa.scq)
			b.consumed(pb.rcq)
		}
	})
}

// A QP of one guest talks to another of the same guest, and to itself.
func TestConnected_Loopback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newFabric(), 1, options{})
		n.probe()
		at, key := n.region(8192, 0, mrAll)
		p, q := n.createQP(qpOptions{}), n.createQP(qpOptions{})
		p.connect(q)
		q.connect(p)
		self := n.createQP(qpOptions{})
		self.connect(self)
		for i, pairs := range [][2]*pair{{p, q}, {self, self}} {
			from, to := pairs[0], pairs[1]
			data := n.fill(at, 1000, byte(i))
			to.postRecv(3, sge{at + 4096, 4096, key})
			from.postSend(from.send(abi.OpSend, sge{at, 1000, key}))
			n.settle()
			if c, ok := n.poll(to.rcq); !ok || c.StatusLength != 1000 || c.Error {
				t.Fatalf("pair %d: %+v", i, c)
			}
			if !bytes.Equal(n.ram.Read(at+4096, 1000), data) {
				t.Fatalf("pair %d: other bytes", i)
			}
		}
	})
}

// A receiver without a buffer costs time, not the message, and no processor.
func TestConnected_ReceiverNotReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		pa.postSend(pa.send(abi.OpSend, sge{src, 8, skey}))
		time.Sleep(100 * time.Millisecond)
		a.expect(pa.scq)
		pb.postRecv(1, sge{dst, 64, dkey})
		time.Sleep(second)
		a.expect(pa.scq, msnCQE(1, pa.id))
		b.expect(pb.rcq, recvCQE(1, pa.id, 0, "", 8, pb.id))
		var block [abi.LIFStatsLen]byte
		a.engine.StatsInto(block[:])
		if binary.LittleEndian.Uint64(block[776:]) == 0 && binary.LittleEndian.Uint64(block[392:]) == 0 {
			t.Error("no counter moved")
		}
	})
}

// Lost packets are sent again; the counters say so.
func TestConnected_LossIsRepaired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		pa, pb := a.createQP(qpOptions{}), b.createQP(qpOptions{})
		pa.connect(pb)
		pb.connect(pa)
		src, skey := a.region(64<<10, 0, mrAll)
		dst, dkey := b.region(64<<10, 0, mrAll)
		data := a.fill(src, 64<<10, 1)
		drops := 3
		f.filter(func(*packet.Packet) qp.Verdict {
			if drops > 0 {
				drops--
				return qp.Lost
			}
			return qp.Sent
		})
		pa.postSend(pa.send(abi.OpWrite, sge{src, 64 << 10, skey}).remote(dst, dkey))
		time.Sleep(10 * second)
		a.expect(pa.scq, msnCQE(1, pa.id))
		if !bytes.Equal(b.ram.Read(dst, 64<<10), data) {
			t.Fatal("other bytes arrived")
		}
	})
}

// A link without room parks the QP; room wakes it.
func TestConnected_FullLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		full := true
		tries := 0
		f.filter(func(*packet.Packet) qp.Verdict {
			tries++
			if full {
				return qp.Full
			}
			return qp.Sent
		})
		var pairs []*pair
		for range 3 {
			pa, pb := a.createQP(qpOptions{}), b.createQP(qpOptions{})
			pa.connect(pb)
			pb.connect(pa)
			pa.postSend(pa.send(abi.OpWrite, sge{src, 8, skey}).remote(dst, dkey))
			a.expect(pa.scq)
			pairs = append(pairs, pa)
		}
		a.settle()
		if tries != 6 {
			t.Fatalf("%d tries of three QPs on a full link", tries)
		}
		a.engine.Writable(nil) // too early: they try again and park again
		a.settle()
		if tries != 12 {
			t.Fatalf("%d tries after a premature wake-up", tries)
		}
		full = false
		a.engine.Writable(func(qpn uint32) bool { return qpn == pairs[1].id })
		a.expect(pairs[1].scq, msnCQE(1, pairs[1].id))
		a.expect(pairs[0].scq)
		pairs[2].destroy() // parked QPs may go
		a.engine.Writable(nil)
		a.expect(pairs[0].scq, msnCQE(1, pairs[0].id))
	})
}

// Nobody answers: the guest's own count and time, then the error and the
// flush of both queues.
func TestConnected_RetryExceeded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		pb.destroy()
		pa.postSend(pa.send(abi.OpSend, sge{src, 8, skey}))
		pa.postSend(pa.send(abi.OpSend, sge{src, 8, skey}))
		time.Sleep(60 * second)
		a.expect(pa.scq, msnErr(1, pa.id, qp.RetryExceeded), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
		_ = b
	})
}

// Each row of refusals by the peer's memory: what each side is told.
func TestP10_RemoteRefusalsOfAConnection(t *testing.T) {
	type setup struct {
		b        *node
		dst      uint64
		dkey     uint32
		readOnly uint32
		otherPD  uint32
	}
	for _, c := range []struct {
		name   string
		work   func(s *setup, p *pair, src uint64, skey uint32) *work
		status qp.Status
	}{
		{"unknown rkey", func(s *setup, p *pair, src uint64, skey uint32) *work {
			return p.send(abi.OpWrite, sge{src, 8, skey}).remote(s.dst, 0x777700)
		}, qp.RemoteAccErr},
		{"rkey 0", func(s *setup, p *pair, src uint64, skey uint32) *work {
			return p.send(abi.OpWrite, sge{src, 8, skey}).remote(s.dst, 0)
		}, qp.RemoteAccErr},
		{"one byte beyond", func(s *setup, p *pair, src uint64, skey uint32) *work {
			return p.send(abi.OpWrite, sge{src, 8, skey}).remote(s.dst+4096-7, s.dkey)
		}, qp.RemoteAccErr},
		{"range wraps", func(s *setup, p *pair, src uint64, skey uint32) *work {
			return p.send(abi.OpWrite, sge{src, 64, skey}).remote(^uint64(0)-7, s.dkey)
		}, qp.RemoteAccErr},
		{"WRITE to a read-only region", func(s *setup, p *pair, src uint64, skey uint32) *work {
			return p.send(abi.OpWrite, sge{src, 8, skey}).remote(s.dst, s.readOnly)
		}, qp.RemoteAccErr},
		{"another protection domain", func(s *setup, p *pair, src uint64, skey uint32) *work {
			return p.send(abi.OpWrite, sge{src, 8, skey}).remote(s.dst, s.otherPD)
		}, qp.RemoteAccErr},
		{"READ beyond", func(s *setup, p *pair, src uint64, skey uint32) *work {
			return p.send(abi.OpRead, sge{src, 4096, skey}).remote(s.dst+1, s.dkey)
		}, qp.RemoteAccErr},
		{"misaligned atomic", func(s *setup, p *pair, src uint64, skey uint32) *work {
			w := p.send(abi.OpAtomicFA).remote(s.dst+4, s.dkey).u64(abi.AtomicOperand, 1)
			return w.u8(abi.WQENumSGE, 1).u64(abi.AtomicSGE, src).u32(abi.AtomicSGE+8, 8).u32(abi.AtomicSGE+12, skey)
		}, qp.RemoteInvReqErr},
		{"SEND_INV of an ordinary region", func(s *setup, p *pair, src uint64, skey uint32) *work {
			s.b.settle()
			return p.send(abi.OpSendInv).u32(abi.WQEImm, s.dkey)
		}, qp.RemoteAccErr},
		{"SEND longer than the receive", func(s *setup, p *pair, src uint64, skey uint32) *work {
			return p.send(abi.OpSend, sge{src, 65, skey})
		}, qp.RemoteInvReqErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b, pa, pb := twoNodes(t, abi.TypeRC)
				src, skey := a.region(4096, 0, mrAll)
				a.fill(src, 4096, 9)
				s := &setup{b: b}
				s.dst, s.dkey = b.region(4096, 0, mrAll)
				s.readOnly, s.otherPD = b.id()<<8, b.id()<<8
				b.must(abi.AdminCreateMR, &abi.CreateMR{VA: s.dst, Length: 4096, ID: s.readOnly, MapCount: 1, DMA: s.dst, Flags: abi.MRRemoteRead})
				b.must(abi.AdminCreateMR, &abi.CreateMR{VA: s.dst, Length: 4096, PD: 3, ID: s.otherPD, MapCount: 1, DMA: s.dst, Flags: mrAll})
				canary := b.fill(s.dst-4096+4096, 8192, 3) // the region and the page behind it
				pb.postRecv(0, sge{s.dst, 64, s.dkey})
				pa.postSend(c.work(s, pa, src, skey))
				time.Sleep(5 * second)
				a.settle()
				got, ok := a.poll(pa.scq)
				if !ok || !got.Error || qp.Status(got.StatusLength) != c.status || got.MSN != 1 {
					t.Fatalf("requester: %+v", got)
				}
				if !bytes.Equal(b.ram.Read(s.dst, 8192), canary) {
					t.Error("a refused request changed memory")
				}
				// The responder is in error, flushed, and its consumer awake.
				flushes := 0
				for r, ok := b.poll(pb.rcq); ok; r, ok = b.poll(pb.rcq) {
					if !r.Error {
						t.Errorf("responder: %+v", r)
					}
					if r.StatusLength == abi.StatusFlushed {
						flushes++
					}
				}
				if flushes != 2 {
					t.Errorf("responder: %d flush completions", flushes)
				}
				if st := queryState(b, pb.id); st != 6 {
					t.Errorf("responder is in state %d", st)
				}
			})
		})
	}
}

func queryState(n *node, id uint32) uint8 {
	buf := n.ram.Alloc(8192)
	defer n.ram.Free(buf, 8192)
	n.must(abi.AdminQueryQP, &abi.QueryQP{SQDMA: buf, RQDMA: buf + 4096, ID: id})
	var rq abi.QueryRQ
	rq.Get(n.ram.Read(buf+4096, abi.QueryRQLen))
	return rq.State
}

// Faults of the guest's own work.
func TestConnected_LocalFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		work   func(n *node, p *pair, at uint64, key uint32) *work
		status qp.Status
		npg    bool
	}{
		{"unknown lkey", func(_ *node, p *pair, at uint64, key uint32) *work {
			return p.send(abi.OpSend, sge{at, 8, key + 1})
		}, qp.LocalProtErr, false},
		{"lkey 0", func(_ *node, p *pair, at uint64, _ uint32) *work {
			return p.send(abi.OpSend, sge{at, 8, 0})
		}, qp.LocalProtErr, false},
		{"second element out of range", func(_ *node, p *pair, at uint64, key uint32) *work {
			return p.send(abi.OpSend, sge{at, 8, key}, sge{at + 4090, 8, key})
		}, qp.LocalProtErr, false},
		{"element wraps", func(_ *node, p *pair, _ uint64, key uint32) *work {
			return p.send(abi.OpSend, sge{^uint64(0), 8, key})
		}, qp.LocalProtErr, false},
		{"unknown operation", func(_ *node, p *pair, at uint64, key uint32) *work {
			return p.send(99, sge{at, 8, key})
		}, qp.LocalQPOperErr, false},
		{"message too long", func(_ *node, p *pair, at uint64, key uint32) *work {
			return p.send(abi.OpSend, sge{at, 1 << 31, key}, sge{at, 1, key})
		}, qp.LocalLenErr, false},
		{"LOCAL_INV of an ordinary region", func(_ *node, p *pair, _ uint64, key uint32) *work {
			return p.send(abi.OpLocalInv).u32(abi.WQEImm, key)
		}, qp.MemMgmtErr, true},
		{"REG_MR from user space", func(n *node, p *pair, at uint64, _ uint32) *work {
			id := n.id() << 8
			n.must(abi.AdminCreateMR, &abi.CreateMR{ID: id, Flags: abi.MRUserKey | abi.MRInvalidate})
			return p.send(abi.OpRegMR).u32(abi.WQEImm, id).u64(abi.RegVA, at).u64(abi.RegLength, 64).u64(abi.RegDMA, at).u32(abi.RegMapCount, 1)
		}, qp.MemMgmtErr, true},
		{"BIND_MW of an unknown window", func(_ *node, p *pair, at uint64, key uint32) *work {
			return p.send(abi.OpBindMW).u32(abi.WQEImm, 0x777700).u64(abi.BindVA, at).u64(abi.BindLength, 8).u32(abi.BindParent, key)
		}, qp.MemMgmtErr, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, _, pa, _ := twoNodes(t, abi.TypeRC)
				at, key := a.region(4096, 0, mrAll)
				pa.postSend(c.work(a, pa, at, key))
				first := msnErr(1, pa.id, c.status)
				if c.npg {
					first = npgErr(0, pa.id, c.status)
				}
				a.expect(pa.scq, first, npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
				pa.postSend(pa.send(abi.OpSend, sge{at, 8, key})) // the driver flushes it itself
				a.expect(pa.scq, npgErr(0, pa.id, qp.Flushed))
			})
		})
	}
}

// The kernel's fast registration as nvme-rdma uses it: unsignalled REG_MR and
// SEND, the peer writes, SEND_INV takes the key away.
func TestConnected_FastRegistration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		pa := a.createQP(qpOptions{flags: 0x8300, stride: 8})
		pb := b.createQP(qpOptions{flags: 0x8300})
		pa.connect(pb)
		pb.connect(pa)
		index := a.id()
		a.must(abi.AdminCreateMR, &abi.CreateMR{ID: index<<8 | 1, Flags: abi.MRUserKey | abi.MRInvalidate})
		buf := a.ram.Alloc(3 * 4096)
		bdata := b.ram.Alloc(8192)
		data := b.fill(bdata, 8192, 40)
		sqIndex := uint16(0)
		sends, peerSends := uint32(0), uint32(0)
		for key := uint32(1); key < 4; key++ {
			rkey := index<<8 | key
			table := a.ram.Table(buf+8192, buf, buf+4096)
			reg := pa.send(abi.OpRegMR).u16(abi.WQEFlags, 0).u8(abi.WQENumSGE, uint8(key)).u32(abi.WQEImm, rkey)
			reg.u64(abi.RegVA, 0xabcd0000_00000123).u64(abi.RegLength, 8192).u64(abi.RegOffset, 0x123).u64(abi.RegDMA, table)
			reg.u32(abi.RegMapCount, 3).u16(abi.RegAccess, abi.MRLocalWrite|abi.MRRemoteWrite|abi.MRRemoteRead).u8(abi.RegPageShift, 12)
			pb.postRecv(uint64(key), sge{bdata + 4096, 64, 0})
			pa.postSend(reg)
			pa.postSend(pa.send(abi.OpSend, sge{buf, 16, 0})) // lkey 0: kernel
			sends++
			a.expect(pa.scq, npgCQE(sqIndex, pa.id), msnCQE(sends, pa.id))
			sqIndex += 2
			b.expect(pb.rcq, recvCQE(uint64(key), pa.id, 0, "", 16, pb.id))
			// The peer writes, then invalidates with its answer.
			b.ram.Write(bdata, data)
			pa.postRecv(9, sge{buf, 16, 0})
			pb.postSend(pb.send(abi.OpWrite, sge{bdata, 8192, 0}).remote(0xabcd0000_00000123, rkey))
			pb.postSend(pb.send(abi.OpSendInv, sge{bdata, 8, 0}).u32(abi.WQEImm, rkey))
			peerSends += 2
			b.expect(pb.scq, msnCQE(peerSends-1, pb.id), msnCQE(peerSends, pb.id))
			var imm [4]byte
			binary.BigEndian.PutUint32(imm[:], rkey)
			a.expect(pa.rcq, recvCQE(9, pb.id, 1, hex.EncodeToString(imm[:]), 8, pa.id))
			got := append(a.ram.Read(buf+8192+0x123, 4096-0x123), a.ram.Read(buf+8+0, 4096-8)...)
			if !bytes.Equal(got[:4096-0x123], data[:4096-0x123]) || !bytes.Equal(got[4096-0x123:], data[4096-0x123+8:8192-0x123]) {
				t.Fatalf("key %d: other bytes", key)
			}
		}
		// Now the key is gone: the peer's next write is refused.
		pb.postSend(pb.send(abi.OpWrite, sge{bdata, 8, 0}).remote(0xabcd0000_00000123, index<<8|3))
		time.Sleep(second)
		b.settle()
		if c, ok := b.poll(pb.scq); !ok || qp.Status(c.StatusLength) != qp.RemoteAccErr {
			t.Fatalf("write with a dead key: %+v", c)
		}
	})
}
