// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// pair is two connected nodes with 8 MiB of memory each under key 1.
func pair(t testing.TB, typ qp.Type, o options) (w *world, a, b *node) {
	t.Helper()
	w = newWorld()
	a, b = w.add("a", typ, 2), w.add("b", typ, 3)
	for _, n := range w.nodes {
		n.quiet = true
		n.register(1, 0x10000, 8<<20)
	}
	if err := connect(a, b, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.q.Close()
		b.q.Close()
		for len(w.wire) > 0 {
			w.drop(0)
		}
		if w.live != 0 {
			t.Errorf("%d packets were never released", w.live)
		}
	})
	return w, a, b
}

func TestTransfer_EverySizeArrivesUnchanged(t *testing.T) {
	sizes := []uint32{0, 1, 255, 256, 257, 1023, 1024, 1025, 4096, 65536, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1 << 20, 3<<20 + 17}
	for _, op := range []qp.Op{qp.OpSend, qp.OpWrite, qp.OpWriteImm, qp.OpRead} {
		for _, mtu := range []uint8{8, 10, 12} {
			t.Run(fmt.Sprintf("%v/mtu%d", op, 1<<mtu), func(t *testing.T) {
				o := plain
				o.mtu = mtu
				o.psnA, o.psnB = 0xfffff0, 0xffffff // wraps under way
				w, a, b := pair(t, qp.RC, o)
				var got, done []string
				b.onRecv = func(c *qp.RecvCompletion) {
					got = append(got, fmt.Sprintf("%d %v %v %d", c.ID, c.Status, c.Op, c.Length))
				}
				a.onCQE = func(kind string, id uint64, st qp.Status) {
					done = append(done, fmt.Sprintf("%s %d %v", kind, id, st))
				}
				from, to := a.keys[1].buf, b.keys[1].buf
				if op == qp.OpRead {
					from, to = to, from
				}
				for i, n := range sizes {
					got, done = nil, nil
					copy(from, noise(int(n)+64, uint64(i)))
					clear(to)
					if op != qp.OpRead && op != qp.OpWrite {
						b.receive(uint64(i), 1, 0x10000, 4<<20)
					}
					a.post(qp.SendWork{Op: op, RemoteVA: 0x10000, RKey: 1, Signaled: true}, 1, 0x10000, n)
					w.settle()
					if !bytes.Equal(to[:n], from[:n]) {
						t.Fatalf("%d bytes: the payload differs", n)
					}
					if !bytes.Equal(to[n:n+64], make([]byte, 64)) {
						t.Fatalf("%d bytes: memory behind the payload has changed", n)
					}
					if want := fmt.Sprintf("[msn %d OK]", i+1); fmt.Sprint(done) != want {
						t.Fatalf("%d bytes: completions %v, want %s", n, done, want)
					}
					want := "[]"
					switch op {
					case qp.OpSend:
						want = fmt.Sprintf("[%d OK SEND %d]", i, n)
					case qp.OpWriteImm:
						want = fmt.Sprintf("[%d OK WRITE_IMM %d]", i, n)
					}
					if fmt.Sprint(got) != want {
						t.Fatalf("%d bytes: receives %v, want %s", n, got, want)
					}
				}
				if a.count[qp.ReqRetransmitPkts] != 0 {
					t.Errorf("%d packets were sent twice on a perfect link", a.count[qp.ReqRetransmitPkts])
				}
			})
		}
	}
}
