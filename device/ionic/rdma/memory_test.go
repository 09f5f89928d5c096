// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// losable registers memory that loseIt takes away: its key stays good.
func (n *node) losable(size uint64) (at uint64, key uint32) {
	n.t.Helper()
	at, key = n.lost(), n.id()<<8|0x42
	n.must(abi.AdminCreateMR, &abi.CreateMR{VA: at, Length: size, ID: key, MapCount: 1, DMA: at, Flags: mrAll})
	return at, key
}

// loseWrites takes memory away as loseIt does, and leaves some there that can
// only be read.
func (n *node) loseWrites() {
	n.t.Helper()
	n.loseIt()
	f, err := os.CreateTemp("/dev/shm", "readonly")
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		n.t.Fatal(err)
	}
	if err := f.Truncate(4096); err != nil {
		n.t.Fatal(err)
	}
	if err := n.ram.Space.MapFile(n.lost(), 4096, int(f.Fd()), 0, guestmem.Read); err != nil {
		n.t.Fatal(err)
	}
}

// Keys and ranges of a whole list may be good while the memory behind one of
// its elements has gone. No element before that one is written then.
func TestMemory_ListWithALostElementIsNotWrittenAtAll(t *testing.T) {
	const piece = 64
	for _, c := range []struct {
		name     string
		elements int
		lost     int // which of them
		lose     func(n *node)
	}{
		{"first of three", 3, 0, (*node).loseIt},
		{"second of three", 3, 1, (*node).loseIt},
		{"last of three", 3, 2, (*node).loseIt},
		{"last of two", 2, 1, (*node).loseIt},
		{"last of two, readable", 2, 1, (*node).loseWrites},
	} {
		list := func(at uint64, key uint32, gone uint64, goneKey uint32) (l []sge) {
			for i := range c.elements {
				e := sge{at + uint64(i)*128, piece, key}
				if i == c.lost {
					e = sge{gone, piece, goneKey}
				}
				l = append(l, e)
			}
			return l
		}
		t.Run("receive/"+c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b, pa, pb := twoNodes(t, abi.TypeRC)
				src, skey := a.region(4096, 0, mrAll)
				a.fill(src, 4096, 1)
				dst, dkey := b.region(4096, 0, mrAll)
				gone, goneKey := b.losable(4096)
				pb.postRecv(7, list(dst, dkey, gone, goneKey)...)
				c.lose(b)
				pa.postSend(pa.send(abi.OpSend, sge{src, uint32(c.elements) * piece, skey}))
				a.expect(pa.scq, msnErr(1, pa.id, qp.RemoteOperErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
				b.expect(pb.rcq, recvErr(7, pb.id, qp.LocalProtErr), recvErr(0, pb.id, qp.Flushed), npgErr(0, pb.id, qp.Flushed))
				if !bytes.Equal(b.ram.Read(dst, 4096), make([]byte, 4096)) {
					t.Error("the elements that are there were written")
				}
				if n := b.metric("rdma_fault_bad_memory"); n != 1 {
					t.Errorf("%d faults counted, want 1", n)
				}
			})
		})
		t.Run("READ/"+c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b, pa, _ := twoNodes(t, abi.TypeRC)
				src, skey := b.region(4096, 0, mrAll)
				b.fill(src, 4096, 1)
				dst, dkey := a.region(4096, 0, mrAll)
				gone, goneKey := a.losable(4096)
				c.lose(a)
				pa.postSend(pa.send(abi.OpRead, list(dst, dkey, gone, goneKey)...).remote(src, skey))
				a.expect(pa.scq, msnErr(1, pa.id, qp.LocalProtErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
				if !bytes.Equal(a.ram.Read(dst, 4096), make([]byte, 4096)) {
					t.Error("the elements that are there were written")
				}
			})
		})
	}
}
