// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
	"github.com/ernic-dev/ernic/device/ionic/rdma/wqe"
)

// mirror is a link that brings every packet back to its own device.
type mirror struct{ to *rdma.Engine }

func (m *mirror) Transmit(_ *packet.Address, p *packet.Packet) qp.Verdict {
	m.to.Deliver(p)
	return qp.Sent
}

// Every operation works in each version of the opcodes that the device can
// announce, in the kernel's flavour and in the provider's.
func TestOperationsOfEachOpcodeVersion(t *testing.T) {
	for _, version := range []wqe.Version{wqe.V1, wqe.V2} {
		for _, kernel := range []bool{false, true} {
			t.Run(fmt.Sprintf("version=%d/kernel=%v", version, kernel), func(t *testing.T) {
				d := openDeviceWith(t, rdma.Config{Link: &mirror{}, Opcodes: version})
				if d.Version != uint8(version) {
					t.Fatalf("the device announces version %d", d.Version)
				}
				operations(t, d, kernel)
				if err := d.nic.Err(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func operations(t *testing.T, d *Device, kernel bool) {
	c := d.Kernel()
	var err error
	if !kernel {
		c, err = d.OpenUser()
		must(t, err)
	}
	pd, err := c.AllocPD()
	must(t, err)
	cq, err := c.CreateCQ(100, 0)
	must(t, err)
	q, err := pd.CreateQP(QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: 16, MaxRecv: 16, MaxSendSGE: 1, MaxRecvSGE: 1})
	must(t, err)
	addr := netip.MustParseAddr("10.0.0.1")
	path := Path{SrcMAC: d.nic.MAC(), DstMAC: d.nic.MAC(), Src: addr, Dst: addr}
	must(t, q.Connect(path, 7, Connection{QPN: q.QPN, PSN: 7}, ConnectOptions{Timeout: 18}))
	buf, err := c.NewBuffer(4096, 0)
	must(t, err)
	mr, err := pd.RegMR(buf, LocalWrite|RemoteWrite|RemoteRead|RemoteAtomic|BindMW)
	must(t, err)

	// run posts one request and returns its completion, and that of a receive.
	run := func(wr SendWR, receives bool) (send, recv WC) {
		t.Helper()
		n := 1
		if receives {
			n = 2
			must(t, q.PostRecv(RecvWR{ID: 2, SGEs: []SGE{buf.SGE(3072, 64, mr.Key)}}))
		}
		wr.ID, wr.Flags = 1, Signaled
		must(t, q.PostSend(wr))
		wc, err := cq.PollN(n, time.Minute)
		must(t, err)
		for _, w := range wc {
			if w.Status != Success {
				t.Fatalf("operation %d: %v", wr.Op, w.Status)
			}
			if w.ID == 1 {
				send = w
			} else {
				recv = w
			}
		}
		return send, recv
	}
	text := []byte("sixteen bytes...")
	from := []SGE{buf.SGE(0, 16, mr.Key)}
	buf.Write(0, text)

	run(SendWR{Op: OpSend, SGEs: from}, true)
	if got := buf.Read(3072, 16); !bytes.Equal(got, text) {
		t.Errorf("SEND brought %q", got)
	}
	if _, r := run(SendWR{Op: OpSendImm, SGEs: from, Imm: 0x01020304}, true); r.Imm != 0x01020304 {
		t.Errorf("SEND_IMM brought %#x", r.Imm)
	}
	run(SendWR{Op: OpWrite, SGEs: from, RemoteAddr: buf.VA + 1024, RKey: mr.Key}, false)
	if got := buf.Read(1024, 16); !bytes.Equal(got, text) {
		t.Errorf("WRITE brought %q", got)
	}
	if _, r := run(SendWR{Op: OpWriteImm, SGEs: from, RemoteAddr: buf.VA + 1040, RKey: mr.Key, Imm: 9}, true); r.Imm != 9 || r.Len != 16 {
		t.Errorf("WRITE_IMM brought %#x, %d bytes", r.Imm, r.Len)
	}
	run(SendWR{Op: OpRead, SGEs: []SGE{buf.SGE(2048, 16, mr.Key)}, RemoteAddr: buf.VA + 1040, RKey: mr.Key}, false)
	if got := buf.Read(2048, 16); !bytes.Equal(got, text) {
		t.Errorf("READ brought %q", got)
	}

	word := func(off int) uint64 { return le.Uint64(buf.Read(off, 8)) }
	buf.Write(512, le.AppendUint64(nil, 40))
	old := []SGE{buf.SGE(520, 8, mr.Key)}
	run(SendWR{Op: OpFetchAdd, SGEs: old, RemoteAddr: buf.VA + 512, RKey: mr.Key, Swap: 2}, false)
	if word(512) != 42 || word(520) != 40 {
		t.Errorf("FETCH_ADD left %d and brought %d", word(512), word(520))
	}
	run(SendWR{Op: OpCmpSwap, SGEs: old, RemoteAddr: buf.VA + 512, RKey: mr.Key, Compare: 42, Swap: 7}, false)
	if word(512) != 7 || word(520) != 42 {
		t.Errorf("CMP_SWAP left %d and brought %d", word(512), word(520))
	}

	if kernel {
		fast, err := pd.AllocFastMR()
		must(t, err)
		must(t, fast.Map(buf))
		run(SendWR{Op: OpRegMR, MR: fast, NewKey: 3, VA: buf.VA, Access: LocalWrite | RemoteWrite | RemoteRead}, false)
		run(SendWR{Op: OpWrite, SGEs: from, RemoteAddr: buf.VA + 1100, RKey: fast.Key}, false)
		if _, r := run(SendWR{Op: OpSendInv, SGEs: from, InvKey: fast.Key}, true); r.InvKey != fast.Key {
			t.Errorf("SEND_INV invalidated %#x, want %#x", r.InvKey, fast.Key)
		}
		run(SendWR{Op: OpRegMR, MR: fast, NewKey: 4, VA: buf.VA, Access: LocalWrite | RemoteWrite}, false)
		run(SendWR{Op: OpLocalInv, InvKey: fast.Key}, false)
		return
	}
	mw, err := pd.AllocMW(true)
	must(t, err)
	run(SendWR{Op: OpBindMW, MW: mw, MR: mr, NewKey: 5, VA: buf.VA + 256, Length: 256, Access: RemoteWrite}, false)
	run(SendWR{Op: OpWrite, SGEs: from, RemoteAddr: buf.VA + 256, RKey: mw.Key}, false)
	if got := buf.Read(256, 16); !bytes.Equal(got, text) {
		t.Errorf("WRITE through a window brought %q", got)
	}
	run(SendWR{Op: OpLocalInv, InvKey: mw.Key}, false)
}
