// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"bytes"
	"encoding/binary"
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

// fuzzUnit is the bytes of fuzz input that make one packet: every combination
// of fields is reachable by changing few bytes, which is not so of the wire
// format (FuzzDecode is for that).
//
//	0 op  1 flags  2 syndrome  3-4 PSN, signed, around 0  5 count
//	6-7 payload  8-9 length  10 rkey and length's top bit  11 low bits of va
const fuzzUnit = 12

func fuzzPacket(w *world, b []byte) *packet.Packet {
	le := binary.LittleEndian
	w.live++
	p := packet.Wrap(make([]byte, min(int(le.Uint16(b[6:])), 8192)), payload{w})
	p.Op, p.Flags, p.Syndrome = packet.Op(b[0]%13), packet.Flags(b[1]&0x1f), packet.Syndrome(b[2])
	p.PSN = uint32(int32(int16(le.Uint16(b[3:])))) & packet.PSNMask
	p.Count = 1 + uint32(b[5]&0x7f)
	if b[5] > 0xf0 {
		p.Count = 1 << (b[5] - 0xe9) // up to 2^22
	}
	p.Length = uint32(le.Uint16(b[8:])) | uint32(b[10]&0x80)<<24
	p.RKey = uint32(b[10] & 7)
	p.VA = 0x1000 + uint64(int64(int8(b[11])))*8 + uint64(b[11]&1)
	if b[11] == 0x80 {
		p.VA = 1<<64 - 4
	}
	p.Operand, p.Compare = uint64(p.Length), 0
	p.Imm[3] = byte(p.RKey)
	p.QKey = 7 + uint32(b[2]&1)
	p.SrcQPN, p.DstQPN = 9, 2
	p.SrcGID[0], p.DstGID[0] = 'p', 'n'
	return p
}

// FuzzResponder feeds packets of a peer to a QP of each type that is at work
// itself. Whatever the peer sends: completions keep their rules, no byte
// outside the registered range changes, every packet is released.
func FuzzResponder(f *testing.F) {
	const (
		whole = byte(packet.First | packet.Last | packet.AckRequest)
		first = byte(packet.First)
		last  = byte(packet.Last)
	)
	unit := func(op packet.Op, flags byte, syn packet.Syndrome, psn int16, count byte, bytes, length uint16, key, va byte) []byte {
		b := []byte{byte(op), flags, byte(syn), byte(psn), byte(psn >> 8), count}
		b = binary.LittleEndian.AppendUint16(b, bytes)
		b = binary.LittleEndian.AppendUint16(b, length)
		return append(b, key, va)
	}
	for _, script := range [][][]byte{
		{
			unit(packet.Send, whole, 0, 0, 0, 8, 8, 0, 0), unit(packet.Write, whole, 0, 1, 0, 8, 8, 1, 0),
			unit(packet.ReadRequest, whole, 0, 2, 0, 0, 8, 1, 0), unit(packet.FetchAdd, whole, 0, 3, 0, 0, 8, 1, 0),
			unit(packet.FetchAdd, whole, 0, 3, 0, 0, 8, 1, 0), unit(packet.WriteImm, whole, 0, 4, 0, 8, 8, 1, 0),
		},
		{
			unit(packet.Send, first, 0, 0, 1, 2048, 2500, 0, 0), unit(packet.Send, last, 0, 2, 0, 452, 0, 0, 0),
			unit(packet.Send, first, 0, 0, 1, 2048, 2500, 0, 0), unit(packet.SendInv, whole, 0, 3, 0, 0, 0, 3, 0),
		},
		{unit(packet.Write, whole, 0, 5, 0, 8, 8, 1, 0), unit(packet.Write, whole, 0, -1, 0, 8, 8, 1, 0)},
		{unit(packet.Write, whole, 0, 0, 0, 8, 8, 1, 0x80), unit(packet.FetchAdd, whole, 0, 0, 0, 0, 8, 1, 1)},
		{unit(packet.ReadRequest, first, 0, 0, 3, 0, 4096, 1, 0), unit(packet.ReadRequest, last, 0, 4, 0, 0, 8, 0x81, 0)},
		{unit(packet.Ack, 0, 0, 1, 0, 0, 0, 0, 0), unit(packet.Ack, 0, packet.RNR|3, 2, 0, 0, 0, 0, 0), unit(packet.Ack, 0, packet.NakSequence, 2, 0, 0, 0, 0, 0)},
		{unit(packet.Ack, 0, packet.NakRemoteAccess, 1, 0, 0, 0, 0, 0), unit(packet.AtomicAck, 0, 0, 0, 0, 0, 0, 0, 0)},
		{unit(packet.Ack, 0, 0, 2, 0, 0, 0, 0, 0), unit(packet.ReadResponse, whole, 0, 3, 0, 8, 0, 0, 0), unit(packet.AtomicAck, 0, 0, 6, 0, 0, 0, 0, 0)},
		{unit(packet.Datagram, whole, 0, 0, 0, 8, 8, 0, 0), unit(packet.DatagramImm, whole, 1, 0, 0, 5000, 8, 0, 0)},
		{unit(packet.Send, whole|byte(packet.Unreliable), 0, 0, 0, 8, 8, 0, 0), unit(packet.Write, first|byte(packet.Unreliable), 0, 1, 0, 1024, 2000, 1, 0)},
	} {
		for kind := range byte(3) {
			f.Add(kind, bytes.Join(script, nil))
		}
	}
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
			n.receive(uint64(i), 1, 0x1000, uint32(4-i%5)*1000)
			n.post(qp.SendWork{Op: qp.Op(i % 8), RemoteVA: 0x1000, RKey: 1, AH: 1}, 1, 0x1000, 8)
		}
		stepAll := func() {
			for steps := 0; n.step(); steps++ {
				if steps > 10_000 {
					t.Fatal("Step always wants more")
				}
			}
		}
		stepAll()
		for i := 0; len(data) >= fuzzUnit && i < 200; i++ {
			n.q.Deliver(fuzzPacket(w, data))
			data = data[fuzzUnit:]
			if i%3 != 1 {
				n.full = i%7 == 6
				stepAll()
				w.now = w.now.Add(time.Duration(i) * time.Millisecond)
			}
		}
		n.full = false
		stepAll()
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
