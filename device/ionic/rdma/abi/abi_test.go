// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// layout is a struct with both directions.
type layout interface{ Put(b []byte) }

// The bytes of every structure, with a different value in every field, so that
// a field that moves, shrinks or changes its byte order is seen.
func TestLayouts_AreThoseOfTheDriver(t *testing.T) {
	header := func(op uint8, n uint16) func([]byte) {
		return func(b []byte) { PutAdminHeader(b, op, n) }
	}
	for _, c := range []struct {
		name string
		v    layout
		zero layout
		len  int
		pre  func([]byte)
		want string
	}{
		{
			"CREATE_CQ",
			&CreateCQ{EQ: 0x01020304, DepthLog2: 10, StrideLog2: 5, PageSizeLog2: 12, Flags: 0x11121314, ID: 0x22, MapCount: 8, DMA: 0x1122334455667788, DBID: 0x0a0b},
			&CreateCQ{}, AdminHeaderLen + CreateCQLen, header(AdminCreateCQ, CreateCQLen),
			"01002200 04030201 0a05000c 14131211 22000000 ffffffff 08000000 8877665544332211 0b0a",
		},
		{
			"CREATE_QP",
			&CreateQP{
				PD: 5, Flags: 0x8300, ID: 0x010203, DBID: 7, Type: 3,
				SQ: RingDesc{CQ: 0x21, DepthLog2: 8, StrideLog2: 6, PageSizeLog2: 12, MapCount: 2, DMA: 0x1000},
				RQ: RingDesc{CQ: 0x22, DepthLog2: 9, StrideLog2: 7, PageSizeLog2: 13, MapCount: 3, DMA: 0x2000},
			},
			&CreateQP{}, AdminHeaderLen + CreateQPLen, header(AdminCreateQP, CreateQPLen),
			"02004000 05000000 00008300 21000000 0806000c ffffffff 02000000 0010000000000000 " +
				"22000000 0907000d ffffffff 03000000 0020000000000000 03020100 0700 03 00",
		},
		{
			"CREATE_MR",
			&CreateMR{VA: 0x1122334455667788, Length: 0x99aabbccddeeff00, PD: 2, ID: 0x102, MapCount: 3, DMA: 0x4000, Flags: 0xa001, PageSizeLog2: 21},
			&CreateMR{}, AdminHeaderLen + CreateMRLen, header(AdminCreateMR, CreateMRLen),
			"03002d00 8877665544332211 00ffeeddccbbaa99 02000000 02010000 ffffffff 03000000 0040000000000000 01a0 00 00 15",
		},
		{
			"CREATE_AH",
			&CreateAH{DMA: 0x5000, Length: 66, PD: 9, ID: 0x0304, DBID: 1, Profile: 3},
			&CreateAH{}, AdminHeaderLen + CreateAHLen, header(AdminCreateAH, CreateAHLen),
			"0d001800 0050000000000000 42000000 09000000 04030000 0100 03 00",
		},
		{
			"MODIFY_QP",
			&ModifyQP{
				Mask: 0x129181, Profile: 2, Flags: 0x8307, RQPSN: 0x010203, SQPSN: 0x040506, QKeyDestQPN: 0x070809,
				RateLimit: 0x0a0b0c0d, PMTU: 10, RetryCnt: 7, RNRRetry: 6, RNRTimer: 12, Timeout: 14, RSQDepth: 5, RRQDepth: 4,
				PKey: 0x1213, AH: 0x141516, TemplateLen: 42, PCP: 3, DSCP: 26, State: 2, CurState: 1, DMA: 0x6000, ID: 0x22,
			},
			&ModifyQP{}, AdminHeaderLen + ModifyQPLen, header(AdminModifyQP, ModifyQPLen),
			"09003c00 00129181 00 02 8307 03020100 06050400 09080700 0d0c0b0a 0a 67 0c 0e 05 04 1312 1615142a 03 1a 00 12 " +
				"ffffffff ffffffff 0060000000000000 22000000",
		},
		{
			"QUERY_QP",
			&QueryQP{HeaderDMA: 0x1000, SQDMA: 0x2000, RQDMA: 0x3000, AH: 4, ID: 5, DBID: 6},
			&QueryQP{}, AdminHeaderLen + QueryQPLen, header(AdminQueryQP, QueryQPLen),
			"0a002200 0010000000000000 0020000000000000 0030000000000000 04000000 05000000 0600",
		},
		{
			"STATS", &Stats{DMA: 0x7000, Length: 4096, ID: 3}, &Stats{}, AdminHeaderLen + StatsLen,
			header(AdminStatsHeaders, StatsLen), "04001100 0070000000000000 00100000 03000000 00",
		},
		{
			"DESTROY_MR", &Destroy{ID: 0x01020304}, &Destroy{}, AdminHeaderLen + DestroyLen,
			header(AdminDestroyMR, DestroyLen), "06000400 04030201",
		},
		{
			"RDMA_CREATE_EQ",
			&QueueCommand{Opcode: 51, LIF: 0, ID: 2, CID: 7, DBID: 3, DepthLog2: 10, StrideLog2: 2, DMA: 0x8000},
			&QueueCommand{}, 24, nil, "33000000 02000000 07000000 0300 0a 02 0080000000000000",
		},
		{
			"QUERY_QP send side",
			&QuerySQ{RNRTimer: 12, Timeout: 14, Flags: 0x8307, PKey: 1, QKeyDestQPN: 0x22, RateLimit: 3, RQPSN: 0x010203},
			&QuerySQ{}, QuerySQLen, nil, "0c 0e 8307 0000 0001 00000022 00000003 00010203",
		},
		{
			"QUERY_QP receive side",
			&QueryRQ{State: 3, PMTU: 10, RetryCnt: 7, RNRRetry: 6, RRQDepth: 4, RSQDepth: 5, SQPSN: 0x040506, Flags: 0x0307},
			&QueryRQ{}, QueryRQLen, nil, "3a 67 04 05 00040506 0307 0000",
		},
	} {
		b := make([]byte, 4096)
		for i := range b {
			b[i] = 0
		}
		if c.pre != nil {
			c.pre(b)
		}
		c.v.Put(b)
		want := unhex(t, c.want)
		if len(want) != c.len {
			t.Fatalf("%s: the expectation has %d bytes, the layout %d", c.name, len(want), c.len)
		}
		if got := b[:c.len]; string(got) != string(want) {
			t.Errorf("%s:\n got %x\nwant %x", c.name, got, want)
		}
		c.zero.(interface{ Get(b []byte) }).Get(b)
		if !reflect.DeepEqual(c.v, c.zero) {
			t.Errorf("%s: read back %+v, wrote %+v", c.name, c.zero, c.v)
		}
	}
}

func TestCQE_OfEachType(t *testing.T) {
	for _, c := range []struct {
		v    CQE
		want string
	}{
		{CQE{Type: CQEAdmin, QID: 0, CmdIndex: 0x0102, CmdOp: 9}, "0102 09 0000000000 0000000000000000 0000000000000000 00000000 00000000"},
		{CQE{Type: CQEAdmin, QID: 1, Error: true, StatusLength: 5}, "0000 00 0000000000 0000000000000000 0000000000000000 00000005 00000102"},
		{
			CQE{
				Type: CQERecv, QID: 0x22, StatusLength: 296, WQEID: 0x0102, SrcQPNOp: 2<<RecvOpShift | 1 | RecvIPv4 | RecvVLAN,
				SrcMAC: [6]byte{2, 0xaa, 0xbb, 0xcc, 0xdd, 1}, VLAN: 0x6005, Imm: [4]byte{1, 2, 3, 4},
			},
			"0201000000000000 c2000001 02aabbccdd01 6005 01020304 00000128 00002220",
		},
		{CQE{Type: CQESendMSN, QID: 0x22, MSN: 0x01020304}, "00000000 01020304 0000000000000000 0000000000000000 00000000 00002240"},
		{CQE{Type: CQESendNPG, QID: 0x22, WQEID: 0x0102, Error: true, StatusLength: StatusFlushed}, "00000000 00000000 0000000000000000 0201000000000000 00000004 00002262"},
	} {
		var b [CQELen]byte
		c.v.Put(b[:])
		if want := unhex(t, c.want); string(b[:]) != string(want) {
			t.Errorf("%+v:\n got %x\nwant %x", c.v, b, want)
		}
		b[31] |= CQEColor
		var back CQE
		if color := back.Get(b[:]); color != 1 || back != c.v {
			t.Errorf("read back %+v, colour %d; wrote %+v", back, color, c.v)
		}
	}
}

func TestEQE_IsOneWord(t *testing.T) {
	v := EQE{Type: EventCQ, Code: EventCQNotify, QID: 34}.Word() | 1
	if v != 0x00002201 {
		t.Errorf("notification of CQ 34 is %#08x", v)
	}
	e, color := DecodeEQE(EQE{Type: EventQP, Code: 10, QID: 0xabcdef}.Word())
	if e != (EQE{Type: EventQP, Code: 10, QID: 0xabcdef}) || color != 0 {
		t.Errorf("read back %+v, colour %d", e, color)
	}
}

func TestDoorbell_TakesTheValueApart(t *testing.T) {
	for v, want := range map[uint64]Doorbell{
		0x0000_0000_0200_0003: {Index: 3, QID: 2},
		0x0000_0000_2201_0001: {Index: 1, Ring: RingArm, QID: 34},
		0x0000_ffff_ff02_ffff: {Index: 0xffff, Ring: RingSolicited, QID: QIDMask},
	} {
		d, ok := DecodeDoorbell(v)
		if !ok || d != want || d.Value() != v {
			t.Errorf("%#x is %+v, %v; back %#x", v, d, ok, d.Value())
		}
	}
	for _, v := range []uint64{1 << 19, 1 << 23, 1 << 48, 1 << 63} {
		if _, ok := DecodeDoorbell(v); ok {
			t.Errorf("%#x has a reserved bit and is taken", v)
		}
	}
}

func TestAdminStrides_OfEachCommand(t *testing.T) {
	for n, want := range map[uint16]uint32{0: 1, 4: 1, 60: 1, 61: 2, CreateQPLen: 2, 124: 2, 125: 3, 0xffff: 1025} {
		if got := AdminStrides(n); got != want {
			t.Errorf("a body of %d bytes takes %d strides, want %d", n, got, want)
		}
	}
}

func TestIdentity_OffsetsInTheBlock(t *testing.T) {
	id := Identity{
		Version: 1, QPOpcodes: 11, AdminOpcodes: 19, MinorVersion: 2, PageTables: 0x01000000, MRs: 0x10001, AHs: 0x10002,
		MaxStride: 9, CLStride: 6, PTEStride: 3, RRQStride: 5, RSQStride: 7, DCQCNProfiles: 8, UDMAShift: 3, PageSizeCap: 0x40201000,
		AQ: QueueType{4, 1, 0}, SQ: QueueType{5, 4096, 1}, RQ: QueueType{6, 4097, 2}, CQ: QueueType{7, 8192, 3}, EQ: QueueType{8, 32, 4},
		StatsType: 3,
	}
	b := make([]byte, IdentityLen+8)
	id.Put(b)
	want := unhex(t, "010b1302 00000001 01000100 02000100 09060305 07080300 0010204000000000"+
		"04000000 01000000 00000000 05000000 00100000 01000000 06000000 01100000 02000000"+
		"07000000 00200000 03000000 08000000 20000000 04000000 0300")
	if string(b[:len(want)]) != string(want) {
		t.Errorf("identity\n got %x\nwant %x", b[:len(want)], want)
	}
	for i, v := range b[len(want):] {
		if v != 0 {
			t.Fatalf("reserved byte %d is %#x", len(want)+i, v)
		}
	}
	var back Identity
	back.Get(b)
	if back != id {
		t.Errorf("read back %+v", back)
	}
}

func TestStat_NameIsTerminated(t *testing.T) {
	var b [StatLen]byte
	s := Stat{Type: StatLE64, Offset: 904, Name: strings.Repeat("n", 40)}
	s.Put(b[:])
	if b[31] != 0 || b[30] != 'n' {
		t.Errorf("entry ends with %x", b[28:])
	}
	var back Stat
	back.Get(b[:])
	if back.Type != StatLE64 || back.Offset != 904 || back.Name != strings.Repeat("n", StatNameLen) {
		t.Errorf("read back %+v", back)
	}
	if string(b[:4]) != "\x40\x00\x03\x88" {
		t.Errorf("type and offset are %x", b[:4])
	}
}
