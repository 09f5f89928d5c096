// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// judge watches the completions of a node for what no input may bring about.
type judge struct {
	t            *testing.T
	n            *node
	msn          uint64
	sendOver     bool
	recvOver     bool
	sends, recvs int
}

func (j *judge) watch() {
	j.n.onCQE = func(kind string, id uint64, st qp.Status) {
		if j.sendOver {
			j.t.Fatalf("%s: send completion %s %d %v after the flush", j.n.name, kind, id, st)
		}
		j.sends++
		if kind == "flush" {
			j.sendOver = true
			return
		}
		if kind == "msn" {
			if id <= j.msn {
				j.t.Fatalf("%s: message number %d after %d", j.n.name, id, j.msn)
			}
			j.msn = id
		}
		if j.sends > j.n.sqNext {
			j.t.Fatalf("%s: %d completions of %d WQEs", j.n.name, j.sends, j.n.sqNext)
		}
	}
	j.n.onRecv = func(c *qp.RecvCompletion) {
		if j.recvOver {
			j.t.Fatalf("%s: receive completion after the flush", j.n.name)
		}
		if c.Status == qp.Flushed {
			j.recvOver = true
			return
		}
		if j.recvs++; j.recvs > j.n.rqNext {
			j.t.Fatalf("%s: %d completions of %d receives", j.n.name, j.recvs, j.n.rqNext)
		}
	}
}

// restart forgets what a RESET ends.
func (j *judge) restart() { *j = judge{t: j.t, n: j.n}; j.watch() }

const fuzzHead = packet.HeaderLen + 2

// FuzzResponder feeds the packets in data, header and two bytes of payload
// length each, to QPs of all types that are at work themselves. Whatever the
// peer sends: completions keep their rules, no byte outside the registered
// range changes, every packet is released.
func FuzzResponder(f *testing.F) {
	seed := func(ps ...packet.Header) {
		var b []byte
		for _, h := range ps {
			p := packet.Get(0)
			p.Header = h
			n := 0
			if !h.Op.IsDatagram() && h.Op != packet.ReadRequest && h.Op < packet.CompareSwap {
				n = int(h.Length)
			}
			b = append(b, byte(n), byte(n>>8))
			b = append(b, p.Encode()[:packet.HeaderLen]...)
		}
		f.Add(byte(0), b)
		f.Add(byte(1), b)
		f.Add(byte(2), b)
	}
	base := packet.Header{SrcQPN: 9, DstQPN: 2, Count: 1, Flags: packet.First | packet.Last | packet.AckRequest, VA: 0x1000, RKey: 1, Length: 8}
	base.SrcGID[0] = 'p'
	with := func(op packet.Op, psn uint32, more func(*packet.Header)) packet.Header {
		h := base
		h.Op, h.PSN = op, psn
		if more != nil {
			more(&h)
		}
		return h
	}
	seed(with(packet.Send, 0, nil), with(packet.Write, 1, nil), with(packet.ReadRequest, 2, func(h *packet.Header) { h.Operand = 8 }),
		with(packet.FetchAdd, 3, nil), with(packet.FetchAdd, 3, nil), with(packet.WriteImm, 4, nil))
	seed(with(packet.Write, 5, nil), with(packet.Write, 0xffffff, nil))
	seed(with(packet.Send, 0, func(h *packet.Header) { h.Length = 1 << 31; h.Flags = packet.First }))
	seed(with(packet.Ack, 0, nil), with(packet.ReadResponse, 1, nil), with(packet.AtomicAck, 2, nil))
	seed(with(packet.Ack, 0, func(h *packet.Header) { h.Syndrome = packet.RNR | 3 }),
		with(packet.Ack, 0, func(h *packet.Header) { h.Syndrome = packet.NakSequence }),
		with(packet.Ack, 1, func(h *packet.Header) { h.Syndrome = packet.NakRemoteAccess }))
	seed(with(packet.SendInv, 0, func(h *packet.Header) { h.Imm = [4]byte{0, 0, 0, 3} }))
	seed(with(packet.Write, 0, func(h *packet.Header) { h.VA, h.Length = 1<<64-4, 8 }))

	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		typ := []qp.Type{qp.RC, qp.UC, qp.UD}[kind%3]
		w := newWorld()
		n := w.add("n", typ, 2)
		n.quiet = true
		peer := w.add("p", typ, 9) // a name to send to; it never runs
		mem := n.register(1, 0x1000, 4096)
		backing := bytes.Repeat([]byte{canary}, 3*4096)
		mem.buf = backing[4096:8192:8192]
		n.register(3, 0x9000, 64)
		j := &judge{t: t, n: n}
		j.watch()
		var err error
		if typ == qp.UD {
			err = n.toDatagram(7)
		} else {
			if err = n.toRTR(peer, plain, 0); err == nil {
				err = n.toRTS(plain, 0)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			n.receive(uint64(i), 1, 0x1000, uint32(i)*500)
			n.post(qp.SendWork{Op: qp.Op(i % 8), RemoteVA: 0x1000, RKey: 1, AH: 1}, 1, 0x1000, 8)
		}
		for i := 0; len(data) >= fuzzHead; i++ {
			size := min((int(data[0])|int(data[1])<<8)&0x1fff, 1<<12)
			w.live++
			p := packet.Wrap(make([]byte, size), payload{w})
			head := bytes.Clone(data[2:fuzzHead])
			head[3] = packet.HeaderLen
			if err := p.Decode(head); err != nil {
				p.Release()
			} else {
				n.q.Deliver(p)
			}
			data = data[fuzzHead:]
			if i%3 == 2 {
				n.full = i%2 == 0
				for steps := 0; n.step(); steps++ {
					if steps > 1000 {
						t.Fatal("Step always wants more")
					}
				}
				w.now = w.now.Add(time.Duration(i) * time.Millisecond)
			}
		}
		n.full = false
		for steps := 0; n.step(); steps++ {
			if steps > 10_000 {
				t.Fatal("Step always wants more")
			}
		}
		n.q.Close()
		for len(w.wire) > 0 {
			w.drop(0)
		}
		if w.live != 0 {
			t.Fatalf("%d packets were never released", w.live)
		}
		for i, b := range backing {
			if b != canary && (i < 4096 || i >= 8192) {
				t.Fatalf("byte %d outside the region has changed", i-4096)
			}
		}
	})
}

// FuzzScript runs lines of the script language against the same rules.
func FuzzScript(f *testing.F) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no scripts", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		var script []string
		in := true
		for _, line := range strings.Split(string(b), "\n") {
			switch {
			case line == "world" && len(script) > 0:
				f.Add(strings.Join(script, "\n"))
				script, in = nil, true
			case line == "world" || line == "do":
				in = true
			case line == "----":
				in = false
			case in && line != "":
				script = append(script, line)
			}
		}
		f.Add(strings.Join(script, "\n"))
	}
	f.Fuzz(func(t *testing.T, script string) {
		w := newWorld()
		var judges []*judge
		lines := strings.Split(script, "\n")
		for _, line := range lines[:min(len(lines), 200)] {
			words := strings.Fields(line)
			if len(words) > 0 && words[0] == "advance" {
				line = "advance 20ms" // what a fuzzer thinks of may take for ever
			}
			before := len(w.nodes)
			w.run(line)
			if len(w.nodes) > before {
				j := &judge{t: t, n: w.nodes[before]}
				j.watch()
				judges = append(judges, j)
			}
			for _, j := range judges {
				if j.n.q.State() <= qp.RTR || len(words) > 0 && words[0] == "modify" {
					j.restart()
				}
			}
		}
		for _, n := range w.nodes {
			n.q.Close()
		}
		for len(w.wire) > 0 {
			w.drop(0)
		}
		if w.live != 0 {
			t.Fatalf("%d packets were never released", w.live)
		}
	})
}
