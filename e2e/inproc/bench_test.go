// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

// BenchmarkMesh moves messages between two workers over the mesh, with a window
// of them outstanding. Its allocations are those of both workers and drivers.
func BenchmarkMesh(b *testing.B) {
	for _, op := range []struct {
		name string
		op   verbs.Opcode
		size int
	}{
		{"send/64", verbs.OpSend, 64}, {"write/4096", verbs.OpWrite, 4096},
		{"write/65536", verbs.OpWrite, 64 << 10}, {"write/1048576", verbs.OpWrite, 1 << 20},
	} {
		b.Run(op.name, func(b *testing.B) { benchmarkMesh(b, op.op, op.size) })
	}
}

func benchmarkMesh(b *testing.B, op verbs.Opcode, size int) {
	nodes, guests := topology{mesh: true}.build(b)
	x := newEnd(b, nodes[0], guests[0], false, nodes[0].addr)
	y := newEnd(b, nodes[1], guests[1], false, nodes[1].addr)
	qx, qy := connected(x, y, verbs.RC, verbs.ConnectOptions{MTULog2: 12})
	mx, my := x.mr(size, anyAccess), y.mr(size, anyAccess)
	wr := verbs.SendWR{Op: op, Flags: verbs.Signaled, SGEs: []verbs.SGE{mx.Buffer.SGE(0, size, mx.Key)}, RemoteAddr: my.Buffer.VA, RKey: my.Key}
	recv := verbs.RecvWR{SGEs: []verbs.SGE{my.Buffer.SGE(0, size, my.Key)}}
	var wc [64]verbs.WC
	poll := func(e *end) int {
		n, err := e.cq.Poll(wc[:])
		if err != nil {
			b.Fatal(err)
		}
		for _, w := range wc[:n] {
			if w.Status != verbs.Success {
				b.Fatalf("completion: %v", w.Status)
			}
		}
		return n
	}
	const window = 32
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	sent, done, received := 0, 0, 0
	for done < b.N {
		for sent < b.N && sent-done < window {
			if op == verbs.OpSend {
				if err := qy.PostRecv(recv); err != nil {
					b.Fatal(fmt.Errorf("receive %d: %w", sent, err))
				}
			}
			if err := qx.PostSend(wr); err != nil {
				b.Fatal(fmt.Errorf("send %d: %w", sent, err))
			}
			sent++
		}
		n := poll(x)
		done += n
		if op == verbs.OpSend {
			received += poll(y)
			if sent-received > window {
				y.want(1)
				received++
			}
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	b.StopTimer()
}
