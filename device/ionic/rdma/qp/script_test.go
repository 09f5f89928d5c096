// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// TestScripts runs testdata/*.txt: blocks of commands with the trace they must
// give. Run with -rewrite to record the traces anew.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var w *world
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "world":
				w = newWorld()
			case "do":
			default:
				t.Fatalf("%s: unknown block %q", d.Pos, d.Cmd)
			}
			for _, line := range strings.Split(d.Input, "\n") {
				w.run(line)
			}
			return w.take()
		})
	})
}

// args are the key=value words of a script line; a bare word has value "".
type args map[string]string

func (a args) num(key string, def uint64) uint64 {
	s, ok := a[key]
	if !ok {
		return def
	}
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return def
	}
	return v
}

func (a args) has(key string) bool { _, ok := a[key]; return ok }

var scriptOps = map[string]qp.Op{
	"send": qp.OpSend, "send_inv": qp.OpSendInv, "send_imm": qp.OpSendImm, "read": qp.OpRead,
	"write": qp.OpWrite, "write_imm": qp.OpWriteImm, "cmp_swp": qp.OpCompareSwap,
	"fetch_add": qp.OpFetchAdd, "reg_mr": qp.OpRegMR, "local_inv": qp.OpLocalInv, "bind_mw": qp.OpBindMW,
}

var scriptPackets = map[string]packet.Op{
	"send": packet.Send, "send_imm": packet.SendImm, "send_inv": packet.SendInv, "write": packet.Write,
	"write_imm": packet.WriteImm, "read_request": packet.ReadRequest, "cmp_swp": packet.CompareSwap,
	"fetch_add": packet.FetchAdd, "ack": packet.Ack, "read_response": packet.ReadResponse,
	"atomic_ack": packet.AtomicAck, "datagram": packet.Datagram, "datagram_imm": packet.DatagramImm,
}

var scriptStates = map[string]qp.State{
	"reset": qp.Reset, "init": qp.Init, "rtr": qp.RTR, "rts": qp.RTS, "sqd": qp.SQD, "sqe": qp.SQE, "err": qp.Err,
}

// run executes one line of a script. Lines that make no sense are said to and
// do nothing, so that a fuzzer can write scripts too.
func (w *world) run(line string) {
	words := strings.Fields(line)
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return
	}
	var pos []string
	a := args{}
	for _, word := range words[1:] {
		if k, v, ok := strings.Cut(word, "="); ok {
			a[k] = v
		} else {
			pos = append(pos, word)
			a[word] = ""
		}
	}
	var n, peer *node
	if len(pos) > 0 {
		n = w.node(pos[0])
	}
	if len(pos) > 1 {
		peer = w.node(pos[1])
	}
	switch words[0] {
	case "node":
		if len(pos) == 0 || n != nil || len(w.nodes) > 4 || pos[0] == "" {
			w.logf("error: bad node")
			return
		}
		typ := map[string]qp.Type{"uc": qp.UC, "ud": qp.UD}[a["type"]]
		w.add(pos[0], typ, uint32(a.num("num", 2)))
		return
	case "settle":
		w.settle()
		return
	case "advance":
		d, err := time.ParseDuration(strings.Join(pos, ""))
		if err != nil || d < 0 || d > time.Hour {
			w.logf("error: bad duration")
			return
		}
		w.advance(d)
		return
	case "deliver", "drop", "dup", "swap":
		w.handle(words[0], pos)
		return
	case "inflight":
		for i, p := range w.wire {
			w.logf("%d: %s", i, describe(p))
		}
		return
	}
	if n == nil {
		w.logf("error: no such node or command: %q", line)
		return
	}
	switch words[0] {
	case "connect":
		if peer == nil {
			w.logf("error: no peer")
			return
		}
		if err := connect(n, peer, a.options()); err != nil {
			w.logf("error: %v", err)
		}
	case "rtr":
		if peer == nil {
			w.logf("error: no peer")
			return
		}
		o := a.options()
		if err := n.toRTR(peer, o, o.psnB); err != nil {
			w.logf("error: %v", err)
		}
	case "rts":
		o := a.options()
		if err := n.toRTS(o, o.psnA); err != nil {
			w.logf("error: %v", err)
		}
	case "datagrams":
		if err := n.toDatagram(uint32(a.num("qkey", 7))); err != nil {
			w.logf("error: %v", err)
		}
	case "modify":
		w.modify(n, a)
	case "query":
		q := n.q.Query()
		w.logf("%s: %v sqpsn=%d rqpsn=%d mtu=%d timeout=%d retry=%d rnr=%d timer=%d draining=%v access=%v",
			n.name, q.State, q.SQPSN, q.RQPSN, 1<<q.PathMTU, q.Timeout, q.RetryCnt, q.RNRRetry, q.MinRNRTimer, q.Draining, q.Access)
	case "mr":
		size := a.num("len", 4096)
		if size > 16<<20 {
			w.logf("error: too large")
			return
		}
		r := n.register(uint32(a.num("key", 1)), a.num("va", 0x1000), int(size))
		r.localWrite = !a.has("ro")
		r.remote = qp.Access(a.num("remote", 7))
		r.invalidated = a.has("invalid")
	case "send":
		w.post(n, a)
	case "recv":
		n.receive(a.num("id", uint64(len(n.rq))), uint32(a.num("key", 1)), a.num("va", 0x1000), uint32(a.num("len", 4096)))
		n.rq[len(n.rq)-1].Bad = qp.Status(a.num("bad", 0))
	case "step":
		if n.step() {
			w.logf("%s: more", n.name)
		}
	case "full":
		n.full = a.has("on")
	case "lost":
		n.lost = a.has("on")
	case "inject":
		w.inject(n, a)
	case "close":
		n.q.Close()
	case "count":
		for c := range qp.NumCounters {
			if n.count[c] != 0 {
				w.logf("%s: %v %d", n.name, c, n.count[c])
			}
		}
	case "fill":
		if mem := n.mem(a); mem != nil {
			for i := range mem {
				mem[i] = byte(a.num("byte", 0))
			}
		}
	case "mem":
		w.logf("%s: %x", n.name, n.mem(a))
	case "quiet":
		n.quiet = true
	default:
		w.logf("error: unknown command %q", words[0])
	}
}

func (n *node) mem(a args) []byte {
	r := n.keys[uint32(a.num("key", 1))]
	if r == nil {
		return nil
	}
	off, size := min(a.num("off", 0), uint64(len(r.buf))), a.num("len", 8)
	return r.buf[off:][:min(size, uint64(len(r.buf))-off)]
}

func (a args) options() options {
	o := plain
	for k, p := range map[string]*uint8{"mtu": &o.mtu, "timeout": &o.timeout, "retry": &o.retry, "rnr": &o.rnr, "timer": &o.timer, "depth": &o.depth} {
		*p = uint8(a.num(k, uint64(*p)))
	}
	o.psnA, o.psnB = uint32(a.num("psn", 0)), uint32(a.num("rpsn", 0))
	o.access = qp.Access(a.num("access", 7))
	return o
}

func (w *world) modify(n *node, a args) {
	var m qp.Mask
	var at qp.Attr
	if s, ok := scriptStates[a["state"]]; ok {
		m, at.State = m|qp.MaskState, s
	}
	for _, k := range slices.Sorted(maps.Keys(a)) {
		v := a.num(k, 0)
		switch k {
		case "notify":
			m, at.SQDNotify = m|qp.MaskSQDNotify, true
		case "access":
			m, at.Access = m|qp.MaskAccess, qp.Access(v)
		case "qkey":
			m, at.QKey = m|qp.MaskQKey, uint32(v)
		case "mtu":
			m, at.PathMTU = m|qp.MaskPathMTU, uint8(v)
		case "timeout":
			m, at.Timeout = m|qp.MaskTimeout, uint8(v)
		case "retry":
			m, at.RetryCnt = m|qp.MaskRetryCnt, uint8(v)
		case "rnr":
			m, at.RNRRetry = m|qp.MaskRNRRetry, uint8(v)
		case "timer":
			m, at.MinRNRTimer = m|qp.MaskMinRNRTimer, uint8(v)
		case "sqpsn":
			m, at.SQPSN = m|qp.MaskSQPSN, uint32(v)
		case "rqpsn":
			m, at.RQPSN = m|qp.MaskRQPSN, uint32(v)
		case "rrq":
			m, at.MaxRead = m|qp.MaskMaxRead, uint8(v)
		case "rsq":
			m, at.MaxDestRead = m|qp.MaskMaxDestRead, uint8(v)
		case "dest":
			m, at.DestQPN = m|qp.MaskDestQPN, uint32(v)
		case "av":
			if peer := w.node(a["av"]); peer != nil {
				m, at.Dest, at.SrcGID = m|qp.MaskAV, packet.Address{GID: peer.gid}, n.gid
			}
		}
	}
	if err := n.q.Modify(m, &at); err != nil {
		w.logf("error: %v", err)
		return
	}
	if m&qp.MaskState != 0 && at.State == qp.Reset {
		// The driver resets its rings along with the QP.
		n.sq, n.sqNext, n.rq, n.rqNext = nil, 0, nil, 0
	}
}

func (w *world) post(n *node, a args) {
	op, ok := scriptOps[a["op"]]
	if !ok {
		op = qp.Op(a.num("op", 0))
	}
	imm := uint32(a.num("imm", 0))
	ah := a.num("ah", 1)
	n.post(qp.SendWork{
		Op: op, Fence: a.has("fence"), Solicited: a.has("solicited"), Signaled: !a.has("unsignaled"),
		Imm:    [4]byte{byte(imm >> 24), byte(imm >> 16), byte(imm >> 8), byte(imm)},
		InvKey: uint32(a.num("inv", 0)), RemoteVA: a.num("rva", 0x1000), RKey: uint32(a.num("rkey", 1)),
		Operand: a.num("operand", 0), Compare: a.num("compare", 0),
		AH: uint32(ah), DestQPN: uint32(a.num("qpn", 3)), QKey: uint32(a.num("qkey", 7)),
		Bad:   qp.Status(a.num("bad", 0)),
		Local: qp.LocalWork{Key: uint32(a.num("lockey", 1))},
	}, uint32(a.num("key", 1)), a.num("va", 0x1000), uint32(a.num("len", 64)))
}

// inject hands n a packet that its peer has never sent.
func (w *world) inject(n *node, a args) {
	op, ok := scriptPackets[a["op"]]
	if !ok {
		w.logf("error: no such packet")
		return
	}
	at := n.q.Query()
	w.live++
	p := packet.Wrap(make([]byte, min(a.num("bytes", 0), packet.MaxPayload)), payload{w})
	p.Op = op
	p.SrcQPN, p.DstQPN = uint32(a.num("src", uint64(at.DestQPN))), n.num
	p.SrcGID, p.DstGID = at.Dest.GID, n.gid
	if a.has("stranger") {
		p.SrcGID[15] ^= 1
	}
	p.PSN, p.Count = uint32(a.num("psn", 0))&packet.PSNMask, uint32(a.num("count", 1))
	p.Length = uint32(a.num("len", uint64(len(p.Payload))))
	p.VA, p.RKey = a.num("rva", 0x1000), uint32(a.num("rkey", 1))
	p.Operand, p.Compare = a.num("operand", 0), a.num("compare", 0)
	p.QKey = uint32(a.num("qkey", 7))
	p.Syndrome = packet.Syndrome(a.num("syndrome", 0))
	for name, f := range map[string]packet.Flags{"first": packet.First, "last": packet.Last,
		"ackreq": packet.AckRequest, "solicited": packet.Solicited, "unreliable": packet.Unreliable} {
		if a.has(name) {
			p.Flags |= f
		}
	}
	// As on the wire: what does not decode never reaches a QP.
	c := packet.Wrap(p.Payload, payload{w})
	if err := c.Decode(p.Encode()); err != nil {
		w.logf("error: %v", err)
		c.Payload = nil
		c.Release()
		return
	}
	n.q.Deliver(c)
}

// handle moves packets that are in flight; indices count from the oldest.
func (w *world) handle(cmd string, pos []string) {
	idx := []int{0, 0}
	for i := range min(len(pos), 2) {
		v, err := strconv.Atoi(pos[i])
		if err != nil || v < 0 || v >= len(w.wire) {
			w.logf("error: no packet %q", pos[i])
			return
		}
		idx[i] = v
	}
	if len(w.wire) == 0 {
		w.logf("error: nothing in flight")
		return
	}
	switch cmd {
	case "deliver":
		w.deliver(idx[0])
	case "drop":
		w.logf("drop %s", describe(w.wire[idx[0]]))
		w.drop(idx[0])
	case "dup":
		w.wire = append(w.wire, w.copyPacket(w.wire[idx[0]]))
	case "swap":
		w.wire[idx[0]], w.wire[idx[1]] = w.wire[idx[1]], w.wire[idx[0]]
	}
}
