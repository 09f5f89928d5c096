// SPDX-License-Identifier: Apache-2.0

package wqe

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// entry pads hex bytes to a ring entry of n bytes.
func entry(t testing.TB, n int, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > n {
		t.Fatalf("%d bytes do not fit into %d", len(b), n)
	}
	return append(b, make([]byte, n-len(b))...)
}

const (
	id    = "0500000000000000"
	zero8 = "0000000000000000"
	sge1  = "0000000000001000 00000040 00000142"
	sge2  = "0000000000002000 00000010 00000143"
	sge3  = "fffffffffffff000 00000001 00000144"
)

func el(va uint64, n, key uint32) qp.SGE { return qp.SGE{VA: va, Len: n, Key: key} }

func TestSend_DecodesEveryOperation(t *testing.T) {
	for _, c := range []struct {
		name  string
		typ   qp.Type
		n     int
		bytes string
		want  qp.SendWork
	}{
		{
			"SEND with two elements", qp.RC, 64,
			id + "00 02 0008 00000000" + zero8 + "00000000 00000050" + sge1 + sge2,
			qp.SendWork{Op: qp.OpSend, Signaled: true, NumSGE: 2, Length: 0x50, SGE: [8]qp.SGE{el(0x1000, 0x40, 0x142), el(0x2000, 0x10, 0x143)}},
		},
		{
			"three elements stand behind the length array", qp.RC, 128,
			id + "00 03 1003 00000000" + zero8 + "00000000 00000051" + "00000040 00000010 00000001" + strings.Repeat("00", 20) + sge1 + sge2 + sge3,
			qp.SendWork{
				Op: qp.OpSend, Fence: true, Solicited: true, NumSGE: 3, Length: 0x51,
				SGE: [8]qp.SGE{el(0x1000, 0x40, 0x142), el(0x2000, 0x10, 0x143), el(0xfffffffffffff000, 1, 0x144)},
			},
		},
		{
			"the 16-bit length array has the same size", qp.RC, 128,
			id + "00 01 2000 00000000" + zero8 + "00000000 00000040" + strings.Repeat("00", 32) + sge1,
			qp.SendWork{Op: qp.OpSend, NumSGE: 1, Length: 0x40, SGE: [8]qp.SGE{el(0x1000, 0x40, 0x142)}},
		},
		{
			"SEND_INV", qp.RC, 64, id + "01 00 0008 00012345" + zero8,
			qp.SendWork{Op: qp.OpSendInv, Signaled: true, Imm: [4]byte{0, 1, 0x23, 0x45}, InvKey: 0x12345},
		},
		{
			"inline SEND_IMM", qp.RC, 64, id + "02 00 000c 01020304" + zero8 + "00000000 00000020" + strings.Repeat("ab", 32),
			qp.SendWork{Op: qp.OpSendImm, Signaled: true, Inline: true, Imm: [4]byte{1, 2, 3, 4}, Length: 32},
		},
		{
			"READ", qp.RC, 64, id + "03 01 0008 00000000 1122334455667788 00000242 00000040" + sge1,
			qp.SendWork{Op: qp.OpRead, Signaled: true, RemoteVA: 0x1122334455667788, RKey: 0x242, NumSGE: 1, Length: 0x40, SGE: [8]qp.SGE{el(0x1000, 0x40, 0x142)}},
		},
		{
			"WRITE", qp.UC, 64, id + "04 01 0000 00000000 1122334455667788 00000242 00000040" + sge1,
			qp.SendWork{Op: qp.OpWrite, RemoteVA: 0x1122334455667788, RKey: 0x242, NumSGE: 1, Length: 0x40, SGE: [8]qp.SGE{el(0x1000, 0x40, 0x142)}},
		},
		{
			"WRITE_IMM of nothing", qp.RC, 64, id + "05 00 0000 0a0b0c0d 1122334455667788 00000242 00000000",
			qp.SendWork{Op: qp.OpWriteImm, Imm: [4]byte{10, 11, 12, 13}, RemoteVA: 0x1122334455667788, RKey: 0x242},
		},
		{
			"ATOMIC_CS", qp.RC, 64,
			id + "06 01 0008 00000000 1122334455667788 00000242 0102030405060708 1112131415161718 00000000 0000000000001000 00000008 00000142",
			qp.SendWork{
				Op: qp.OpCompareSwap, Signaled: true, RemoteVA: 0x1122334455667788, RKey: 0x242, Operand: 0x0102030405060708,
				Compare: 0x1112131415161718, NumSGE: 1, Length: 8, SGE: [8]qp.SGE{el(0x1000, 8, 0x142)},
			},
		},
		{
			"UD SEND", qp.UD, 64, id + "00 01 0008 00000000 00000011 00000001 80010000 00000040" + sge1,
			qp.SendWork{Op: qp.OpSend, Signaled: true, AH: 0x11, DestQPN: 1, QKey: 0x80010000, NumSGE: 1, Length: 0x40, SGE: [8]qp.SGE{el(0x1000, 0x40, 0x142)}},
		},
		{
			// The bytes 8-55 are a dump of a real one.
			"REG_MR", qp.RC, 64,
			id + "08 05 0000 00000105 0000000007000123 0000000000002000 0000000000000123 0000000000abc000 00000003 0007 00 0c",
			qp.SendWork{Op: qp.OpRegMR, Imm: [4]byte{0, 0, 1, 5}, Local: qp.LocalWork{
				Key: 0x105, NewKey: 5, Access: 7, PageShift: 12, MapCount: 3, VA: 0x7000123, Length: 0x2000, Offset: 0x123, DMA: 0xabc000,
			}},
		},
		{
			"LOCAL_INV", qp.RC, 64, id + "09 00 0008 00000105",
			qp.SendWork{Op: qp.OpLocalInv, Signaled: true, Imm: [4]byte{0, 0, 1, 5}, Local: qp.LocalWork{Key: 0x105}},
		},
		{
			"BIND_MW", qp.RC, 64, id + "0a 07 0008 00000205 0000000000001000 0000000000000800 00000142 c007",
			qp.SendWork{Op: qp.OpBindMW, Signaled: true, Imm: [4]byte{0, 0, 2, 5}, Local: qp.LocalWork{
				Key: 0x205, NewKey: 7, Access: 0xc007, ParentKey: 0x142, VA: 0x1000, Length: 0x800,
			}},
		},
	} {
		c.want.Index = 5
		got := qp.SendWork{Fence: true, Bad: qp.LocalAccErr, NumSGE: 8, Local: qp.LocalWork{Key: 1}} // reused memory
		Send(&got, entry(t, c.n, c.bytes), 5, c.typ, V1)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

// Version 2 has other codes for the same entries, and another layout for
// atomics.
func TestSend_DecodesVersion2(t *testing.T) {
	for op, code := range abi.Opcodes[V2] {
		e := entry(t, 64, id+"00 01 0008 00000042"+"0000000000007000 00000143 00000040"+sge1)
		e[abi.WQEOp] = abi.Opcodes[V1][op]
		if op == abi.OpAtomicCS || op == abi.OpAtomicFA {
			copy(e[28:], entry(t, 36, "1111111122222222 3333333344444444 00000000 0000000000001000 00000008 00000142"))
		}
		var v1, v2 qp.SendWork
		Send(&v1, e, 5, qp.RC, V1)
		e[abi.WQEOp] = code
		if op == abi.OpAtomicCS || op == abi.OpAtomicFA {
			copy(e[44:], entry(t, 20, "00000142 0000000000001000"))
		}
		Send(&v2, e, 5, qp.RC, V2)
		if v1.Bad != qp.OK || !reflect.DeepEqual(v1, v2) {
			t.Errorf("%v with code %#x:\n got %+v\nwant %+v", v1.Op, code, v2, v1)
		}
	}
	known := 0
	for code := range 256 {
		var w qp.SendWork
		e := entry(t, 64, id+"00 01 0008 00000042"+"0000000000007000 00000143 00000040"+sge1)
		e[abi.WQEOp] = byte(code)
		if Send(&w, e, 5, qp.RC, V2); w.Bad == qp.OK {
			known++
		}
	}
	if known != abi.NumOps {
		t.Errorf("%d codes of version 2 are taken, want %d", known, abi.NumOps)
	}
}

func TestSend_MalformedEntriesFail(t *testing.T) {
	for _, c := range []struct {
		name  string
		typ   qp.Type
		bytes string
		want  qp.Status
	}{
		{"unknown operation", qp.RC, id + "0b", qp.LocalQPOperErr},
		{"version 2 operation", qp.RC, id + "20", qp.LocalQPOperErr},
		{"more elements than a WQE may have", qp.RC, id + "00 09 0000", qp.LocalQPOperErr},
		{"more elements than the entry has room for", qp.RC, id + "00 03 0000", qp.LocalQPOperErr},
		{"elements beyond the entry behind the array", qp.RC, id + "00 01 1000", qp.LocalQPOperErr},
		{"unknown list form", qp.RC, id + "00 01 3000", qp.LocalQPOperErr},
		{"inline beyond the entry", qp.RC, id + "00 00 0004 00000000" + zero8 + "00000000 00000021", qp.LocalLenErr},
		{"inline READ", qp.RC, id + "03 00 0004", qp.LocalQPOperErr},
		{"message beyond 2 GiB", qp.RC, id + "00 00 0000 00000000" + zero8 + "00000000 80000001", qp.LocalLenErr},
		{
			"elements that add up beyond 2 GiB", qp.RC,
			id + "00 02 0000 00000000" + zero8 + "00000000 00000000 0000000000001000 80000000 00000142 0000000000001000 80000000 00000142",
			qp.LocalLenErr,
		},
		{"length that is not the sum", qp.RC, id + "00 01 0000 00000000" + zero8 + "00000000 00000041" + sge1, qp.LocalQPOperErr},
		{"READ on UC", qp.UC, id + "03 00 0000", qp.LocalQPOperErr},
		{"WRITE on UD", qp.UD, id + "04 00 0000", qp.LocalQPOperErr},
		{"SEND_INV on UD", qp.UD, id + "01 00 0000", qp.LocalQPOperErr},
		{"atomic on UC", qp.UC, id + "06 01 0000 00000000" + zero8 + zero8 + zero8 + zero8 + "0000000000001000 00000008 00000142", qp.LocalQPOperErr},
		{"atomic on UD", qp.UD, id + "07 01 0000 00000000" + zero8 + zero8 + zero8 + zero8 + "0000000000001000 00000008 00000142", qp.LocalQPOperErr},
		{"atomic with a long element", qp.RC, id + "07 01 0000 00000000" + zero8 + zero8 + zero8 + zero8 + "0000000000001000 00000010 00000142", qp.LocalQPOperErr},
		{"atomic without an element", qp.RC, id + "07 00", qp.LocalQPOperErr},
	} {
		var w qp.SendWork
		Send(&w, entry(t, 64, c.bytes), 7, c.typ, V1)
		if w.Bad != c.want || w.Index != 7 {
			t.Errorf("%s: status %v, want %v", c.name, w.Bad, c.want)
		}
	}
}

func TestRecv_KeepsTheTokenAndTheWholeSum(t *testing.T) {
	var r qp.RecvWork
	Recv(&r, entry(t, 128, "0123456789abcdef 00 03 1000 00000000"+strings.Repeat("00", 48)+
		"0000000000001000 ffffffff 00000142 0000000000002000 ffffffff 00000142 0000000000003000 00000003 00000142"))
	if r.ID != 0xefcdab8967452301 || r.NumSGE != 3 || r.Length != 2*0xffffffff+3 || r.Bad != qp.OK || r.SGE[2] != (qp.SGE{VA: 0x3000, Len: 3, Key: 0x142}) {
		t.Errorf("%+v", r)
	}
	Recv(&r, entry(t, 64, id+"00 03 0000"))
	if r.Bad != qp.LocalQPOperErr || r.ID != 5 || r.Length != 0 {
		t.Errorf("too many elements: %+v", r)
	}
	Recv(&r, entry(t, 64, id+"00 00 0000"))
	if r.Bad != qp.OK || r.NumSGE != 0 || r.Length != 0 {
		t.Errorf("no elements: %+v", r)
	}
}

func FuzzSend(f *testing.F) {
	f.Add(entry(f, 64, id+"00 02 0008 00000000"+zero8+"00000000 00000050"+sge1+sge2), uint8(0), uint8(6))
	f.Add(entry(f, 128, id+"00 03 1003 00000000"+zero8+"00000000 00000051"+strings.Repeat("00", 32)+sge1+sge2+sge3), uint8(1), uint8(7))
	f.Add(entry(f, 64, id+"08 05 0000 00000105 0000000007000123 0000000000002000"), uint8(3), uint8(6))
	f.Fuzz(func(t *testing.T, b []byte, typ, stride uint8) {
		stride = 6 + stride%4
		e := make([]byte, 1<<stride)
		copy(e, b)
		var w qp.SendWork
		Send(&w, e, 3, qp.Type(typ%4), V1+Version(typ>>7))
		if w.Bad != qp.OK {
			return
		}
		if int(w.NumSGE) > len(w.SGE) || w.Length > abi.MaxMessage {
			t.Fatalf("taken: %+v", w)
		}
		var sum uint64
		for _, s := range w.SGE[:w.NumSGE] {
			sum += uint64(s.Len)
		}
		if w.Inline {
			if int(w.Length) > len(e)-abi.Payload || w.NumSGE != 0 {
				t.Fatalf("inline data beyond the entry: %+v", w)
			}
		} else if w.Op < qp.OpRegMR && sum != uint64(w.Length) {
			t.Fatalf("%d bytes in the elements: %+v", sum, w)
		}
	})
}

func FuzzRecv(f *testing.F) {
	f.Add(entry(f, 64, id+"00 02 0000 00000050"+zero8+zero8+sge1+sge2), uint8(6))
	f.Add(entry(f, 128, id+"00 03 1000 00000000"+strings.Repeat("00", 48)+sge1+sge2+sge3), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, stride uint8) {
		stride = 6 + stride%4
		e := make([]byte, 1<<stride)
		copy(e, b)
		var r qp.RecvWork
		Recv(&r, e)
		var sum uint64
		for _, s := range r.SGE[:r.NumSGE] {
			sum += uint64(s.Len)
		}
		if sum != r.Length || r.ID != le.Uint64(e) || abi.Payload+int(r.NumSGE)*abi.SGELen > len(e) {
			t.Fatalf("%d bytes in the elements: %+v", sum, r)
		}
	})
}

func BenchmarkSend(b *testing.B) {
	e := entry(b, 64, id+"00 02 0008 00000000"+zero8+"00000000 00000050"+sge1+sge2)
	var w qp.SendWork
	b.ReportAllocs()
	for b.Loop() {
		Send(&w, e, 5, qp.RC, V1)
	}
}
