// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// templates of the four forms from node 1 to node 2.
func templates(from, to *node) map[string][]byte {
	mac := fmt.Sprintf("%x%x", to.mac, from.mac)
	v4 := fmt.Sprintf("4568ffff0000400040110000c0a8c8%02xc0a8c8%02x", from.mac[5], to.mac[5])
	v6 := fmt.Sprintf("66812345002011fffe80000000000000000000fffe00%02x%02xfe80000000000000000000fffe00%02x%02x", 0, from.mac[5], 0, to.mac[5])
	udp := "6e7012b700200000"
	out := make(map[string][]byte)
	for name, s := range map[string]string{
		"IPv4": mac + "0800" + v4 + udp, "IPv4 VLAN": mac + "8100a005" + "0800" + v4 + udp,
		"IPv6": mac + "86dd" + v6 + udp, "IPv6 VLAN": mac + "8100a005" + "86dd" + v6 + udp,
	} {
		b, err := hex.DecodeString(s)
		if err != nil {
			panic(err)
		}
		out[name] = b
	}
	return out
}

func (n *node) createAH(id, pd uint32, tmpl []byte) {
	n.t.Helper()
	at := n.ram.Alloc(uint64(len(tmpl)))
	n.ram.Write(at, tmpl)
	n.must(abi.AdminCreateAH, &abi.CreateAH{DMA: at, Length: uint32(len(tmpl)), PD: pd, ID: id})
	n.ram.Write(at, make([]byte, len(tmpl))) // freed by the driver
	n.ram.Free(at, uint64(len(tmpl)))
}

func (p *pair) sendTo(ah, qpn, qkey uint32, sges ...sge) *work {
	return p.send(abi.OpSend, sges...).u32(abi.SendAH, ah).u32(abi.SendDestQPN, qpn).u32(abi.SendQKey, qkey)
}

// The 40 bytes and the completion agree for both families, with and without
// VLAN.
func TestDatagram_HeaderAgreesWithCompletion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		const qkey = 0x11111111
		pa, pb := a.datagramQP(qpOptions{}, qkey), b.datagramQP(qpOptions{}, qkey)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(8192, 0, mrAll)
		data := a.fill(src, 1000, 2)
		index := uint16(0)
		for name, tmpl := range templates(a, b) {
			a.createAH(30, 0, tmpl)
			for _, imm := range []bool{false, true} {
				before := b.fill(dst, 4096, 0xee)
				pb.postRecv(5, sge{dst, 50, dkey}, sge{dst + 100, 3000, dkey})
				w := pa.sendTo(30, pb.id, qkey, sge{src, 1000, skey})
				op, immHex := uint8(0), ""
				if imm {
					w.u8(abi.WQEOp, abi.OpSendImm).u32(abi.WQEImm, 0x0a0b0c0d)
					op, immHex = 2, "0a0b0c0d"
				}
				pa.postSend(w)
				a.expect(pa.scq, npgCQE(index, pa.id))
				index++
				v4, vlan := strings.HasPrefix(name, "IPv4"), strings.HasSuffix(name, "VLAN")
				if v4 {
					op |= 0x80
				}
				tci := "0000"
				if vlan {
					op |= 0x40
					tci = "a005"
				}
				if immHex == "" {
					immHex = "00000000"
				}
				b.expect(pb.rcq, fmt.Sprintf("0500000000000000 %02x%06x %x %s %s %08x %06x21", op, pa.id, a.mac, tci, immHex, 1040, pb.id))
				got := append(b.ram.Read(dst, 50), b.ram.Read(dst+100, 990)...)
				if !bytes.Equal(got[40:], data) {
					t.Fatalf("%s: other payload", name)
				}
				checkGRH(t, name, got[:40], v4, imm, a.mac[5], b.mac[5])
				if !bytes.Equal(b.ram.Read(dst+50, 50), before[50:100]) {
					t.Fatalf("%s: wrote between the elements", name)
				}
			}
		}
		want := packet.Address{MAC: a.mac, GID: [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 168, 14: 200, 15: 1}}
		found := false
		for _, s := range a.observed {
			found = found || s == seenAddress{want, rdma.SourceAH}
		}
		if !found {
			t.Errorf("observed %+v", a.observed)
		}
	})
}

// checkGRH reads the 40 bytes as the kernel and user space do.
func checkGRH(t *testing.T, name string, g []byte, v4, imm bool, from, to byte) {
	t.Helper()
	payload := 1000 + 12 + 8 + 4
	if imm {
		payload += 4
	}
	if v4 {
		if g[0]>>4 == 6 || g[20] != 0x45 || g[29] != 17 || int(binary.BigEndian.Uint16(g[22:])) != 20+8+payload {
			t.Errorf("%s: %x", name, g)
		}
		if g[35] != from || g[39] != to || g[32] != 192 {
			t.Errorf("%s: addresses %x to %x", name, g[32:36], g[36:40])
		}
		sum := uint32(0)
		for i := 20; i < 40; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(g[i:]))
		}
		if sum = sum&0xffff + sum>>16; sum != 0xffff {
			t.Errorf("%s: header sums up to %#x", name, sum)
		}
		return
	}
	if g[0]>>4 != 6 || g[6] != 17 || g[23] != from || g[39] != to || int(binary.BigEndian.Uint16(g[4:])) != 8+payload {
		t.Errorf("%s: %x", name, g)
	}
}

// Whatever is wrong with the way of a datagram, it is complete for its sender
// and silent for the receiver; the counters know.
func TestDatagram_DroppedSilently(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		const qkey = 0x22222222
		pa, pb := a.datagramQP(qpOptions{}, qkey), b.datagramQP(qpOptions{}, qkey)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(8192, 0, mrAll)
		a.createAH(30, 0, templates(a, b)["IPv4"])
		nowhere := templates(a, b)["IPv4"]
		nowhere[5] = 99
		a.createAH(31, 0, nowhere)
		a.createAH(32, 5, templates(a, b)["IPv4"]) // another protection domain
		index := uint16(0)
		for name, w := range map[string]*work{
			"unknown handle":          pa.sendTo(77, pb.id, qkey, sge{src, 100, skey}),
			"handle out of range":     pa.sendTo(1<<30, pb.id, qkey, sge{src, 100, skey}),
			"handle of another PD":    pa.sendTo(32, pb.id, qkey, sge{src, 100, skey}),
			"nobody there":            pa.sendTo(31, pb.id, qkey, sge{src, 100, skey}),
			"no such QP":              pa.sendTo(30, 9999, qkey, sge{src, 100, skey}),
			"wrong Q_Key":             pa.sendTo(30, pb.id, qkey+1, sge{src, 100, skey}),
			"longer than the receive": pa.sendTo(30, pb.id, qkey, sge{src, 161, skey}),
		} {
			if index == 0 {
				pb.postRecv(1, sge{dst, 200, dkey})
			}
			pa.postSend(w)
			a.settle()
			if c, ok := a.poll(pa.scq); !ok || c.Error || c.WQEID != uint64(index) {
				t.Errorf("%s: %+v, %v", name, c, ok)
			}
			index++
			if c, ok := b.poll(pb.rcq); ok {
				t.Errorf("%s: arrived as %+v", name, c)
			}
		}
		// The receive is still there. An own Q_Key is asked for by the top bit.
		pa.postSend(pa.sendTo(30, pb.id, 1<<31, sge{src, 160, skey}))
		b.settle()
		if c, ok := b.poll(pb.rcq); !ok || c.StatusLength != 200 || c.WQEID != 1 {
			t.Errorf("%+v, %v", c, ok)
		}
		pa.postSend(pa.sendTo(30, pb.id, qkey, sge{src, 1, skey})) // nothing posted any more
		b.settle()
		if c, ok := b.poll(pb.rcq); ok {
			t.Errorf("%+v without a receive", c)
		}
		counter := func(n *node, name string) uint64 { return n.counters()[name] }
		for _, c := range []struct {
			n    *node
			name string
			want uint64
		}{
			{a, "tx_rdma_drop_no_ah", 3}, {a, "tx_rdma_drop_no_route", 1}, {b, "rx_rdma_drop_no_qp", 1},
			{b, "rx_rdma_drop_qkey", 1}, {b, "rx_rdma_drop_no_buffer", 1}, {b, "rx_rdma_mtu_discard_pkts", 1},
		} {
			if got := counter(c.n, c.name); got != c.want {
				t.Errorf("%s is %d, want %d", c.name, got, c.want)
			}
		}
	})
}

// counters reads the hw_counters as the driver does.
func (n *node) counters() map[string]uint64 {
	n.t.Helper()
	return n.statistics(abi.AdminStatsHeaders, abi.AdminStatsValues, 0)
}

func (n *node) statistics(headers, values uint8, id uint32) map[string]uint64 {
	n.t.Helper()
	buf := n.ram.Alloc(8192)
	defer n.ram.Free(buf, 8192)
	n.must(headers, &abi.Stats{DMA: buf, Length: 4096})
	n.must(values, &abi.Stats{DMA: buf + 4096, Length: 4096, ID: id})
	out := make(map[string]uint64)
	for i := range abi.MaxStats {
		var s abi.Stat
		s.Get(n.ram.Read(buf+uint64(i)*abi.StatLen, abi.StatLen))
		if s.Type == 0 {
			return out
		}
		if s.Type != abi.StatLE64 || s.Offset%8 != 0 || s.Offset > 4096-8 {
			n.t.Fatalf("counter %+v", s)
		}
		if _, ok := out[s.Name]; ok {
			n.t.Fatalf("counter %s is there twice", s.Name)
		}
		out[s.Name] = n.ram.Load64(buf + 4096 + uint64(s.Offset))
	}
	n.t.Fatal("the list does not end")
	return nil
}

// A GSI send never fails, whatever its work request says.
func TestGSI_NeverFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		for _, n := range []*node{a, b} {
			n.probe()
			n.ids = 16
		}
		const qkey = 0x80010000
		pa := a.datagramQP(qpOptions{id: 1, flags: 0x8300}, qkey)
		pb := b.datagramQP(qpOptions{id: 1, flags: 0x8300}, qkey)
		a.createAH(30, 0, templates(a, b)["IPv4"])
		mad, buf := a.ram.Alloc(4096), b.ram.Alloc(4096)
		a.fill(mad, 256, 1)
		pa.postSend(pa.sendTo(30, 1, qkey, sge{mad, 256, 0x7777}))      // bad lkey
		pa.postSend(pa.sendTo(30, 1, qkey, sge{0x10, 256, 0}))          // not memory
		pa.postSend(pa.sendTo(30, 1, qkey, sge{mad, 256, 0}).u8(8, 77)) // no such operation
		pb.postRecv(0, sge{buf, 296, 0})
		pa.postSend(pa.sendTo(30, 1, qkey, sge{mad, 24, 0}, sge{mad + 24, 232, 0}))
		a.expect(pa.scq, npgCQE(0, 1), npgCQE(1, 1), npgCQE(2, 1), npgCQE(3, 1))
		b.settle()
		if c, ok := b.poll(pb.rcq); !ok || c.StatusLength != 296 || c.Error {
			t.Fatalf("%+v, %v", c, ok)
		}
		if !bytes.Equal(b.ram.Read(buf+40, 256), a.ram.Read(mad, 256)) {
			t.Fatal("another MAD arrived")
		}
	})
}

// Handles follow their last writer, and those of connected QPs end with them.
func TestAddressHandle_Ids(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, _, pa, pb := twoNodes(t, abi.TypeRC)
		id := pa.id + 1000 // toRTR uses this one
		if st := a.status(abi.AdminDestroyAH, &abi.Destroy{ID: 4711}); st != abi.AdminBadIndex {
			t.Errorf("unknown handle: %v", st)
		}
		// A QP's handle id is given away while the QP lives.
		a.createAH(id, 0, templates(a, pb.n)["IPv4"])
		pa.destroy()
		a.must(abi.AdminDestroyAH, &abi.Destroy{ID: id})
		// And one that belongs to a QP goes with it.
		q := a.createQP(qpOptions{id: pa.id, scq: pa.scq})
		q.connect(pb)
		q.destroy()
		if st := a.status(abi.AdminDestroyAH, &abi.Destroy{ID: id}); st != abi.AdminBadIndex {
			t.Errorf("the handle outlived its QP: %v", st)
		}
		for name, c := range map[string]struct {
			change func(*abi.CreateAH)
			want   abi.AdminStatus
		}{
			"id out of range": {func(c *abi.CreateAH) { c.ID = 1 << 20 }, abi.AdminBadIndex},
			"length":          {func(c *abi.CreateAH) { c.Length = 43 }, abi.AdminBadAttr},
			"long":            {func(c *abi.CreateAH) { c.Length = 1 << 31 }, abi.AdminBadAttr},
			"not mapped":      {func(c *abi.CreateAH) { c.DMA = 0x1000 }, abi.AdminBadAttr},
			"not a template":  {func(c *abi.CreateAH) { c.DMA += 14 }, abi.AdminBadAttr},
		} {
			at := a.ram.Alloc(4096)
			a.ram.Write(at, templates(a, pb.n)["IPv4"])
			bad := abi.CreateAH{ID: 5, Length: 42, DMA: at}
			c.change(&bad)
			if st := a.status(abi.AdminCreateAH, &bad); st != c.want {
				t.Errorf("%s: %v, want %v", name, st, c.want)
			}
		}
	})
}

// A UD receive that cannot be written is an error of its consumer alone.
func TestDatagram_BadReceiveBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		const qkey = 5
		pa, pb := a.datagramQP(qpOptions{}, qkey), b.datagramQP(qpOptions{}, qkey)
		src, skey := a.region(4096, 0, mrAll)
		dst, _ := b.region(4096, 0, mrAll)
		a.createAH(30, 0, templates(a, b)["IPv6"])
		pb.postRecv(3, sge{dst, 4096, 0x777700})
		pa.postSend(pa.sendTo(30, pb.id, qkey, sge{src, 8, skey}))
		a.expect(pa.scq, npgCQE(0, pa.id))
		b.expect(pb.rcq, recvErr(3, pb.id, qp.LocalProtErr), recvErr(0, pb.id, qp.Flushed), npgErr(0, pb.id, qp.Flushed))
	})
}
