// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// errorCounters are the hw_counters that moved since before, but for traffic.
func (n *node) errorCounters(before map[string]uint64) map[string]uint64 {
	n.t.Helper()
	moved := make(map[string]uint64)
	for name, v := range n.counters() {
		if v != before[name] && !strings.Contains(name, "_ucast_") {
			moved[name] = v - before[name]
		}
	}
	return moved
}

// counted is a pair with memory on both sides and two receives at b.
type counted struct {
	f        *fabric
	a, b     *node
	pa, pb   *pair
	src, dst uint64
	skey     uint32
	dkey     uint32
}

func newCounted(t *testing.T) *counted {
	f := newFabric()
	c := &counted{f: f, a: newNode(t, f, 1, options{}), b: newNode(t, f, 2, options{})}
	c.a.probe()
	c.b.probe()
	c.b.ids += 100
	c.pa, c.pb = c.a.createQP(qpOptions{stride: 8}), c.b.createQP(qpOptions{stride: 8})
	c.pa.connect(c.pb)
	c.pb.connect(c.pa)
	c.src, c.skey = c.a.region(4096, 0, mrAll)
	c.dst, c.dkey = c.b.region(4096, 0, mrAll)
	return c
}

func (c *counted) write() *work {
	return c.pa.send(abi.OpWrite, sge{c.src, 8, c.skey}).remote(c.dst, c.dkey)
}

func (c *counted) read(n uint32) *work {
	return c.pa.send(abi.OpRead, sge{c.src, n, c.skey}).remote(c.dst, c.dkey)
}

func (c *counted) fetchAdd(va uint64) *work {
	w := c.pa.send(abi.OpAtomicFA).remote(va, c.dkey).u8(abi.WQENumSGE, 1)
	return w.u64(abi.AtomicSGE, c.src).u32(abi.AtomicSGE+8, 8).u32(abi.AtomicSGE+12, c.skey)
}

// lose drops the n-th packet (from 0) that pick wants, on its way.
func (c *counted) lose(n int, pick func(p *packet.Packet) bool) {
	seen := 0
	c.f.filter(func(p *packet.Packet) qp.Verdict {
		if !pick(p) {
			return qp.Sent
		}
		seen++
		if seen-1 == n {
			return swallowed
		}
		return qp.Sent
	})
}

// forge delivers a packet without payload to the requester, as if of its peer.
func (c *counted) forge(h packet.Header) { c.forgeTo(c.pa.id, h) }

// forgeTo is forge to QP id of the same guest.
func (c *counted) forgeTo(id uint32, h packet.Header) {
	p := packet.Get(0)
	h.SrcQPN, h.DstQPN, h.Count = c.pb.id, id, 1
	h.SrcGID = [16]byte{10: 0xff, 11: 0xff, 12: 0xc0, 13: 0xa8, 14: 0xc8, 15: c.b.mac[5]}
	p.Header = h
	c.a.engine.Deliver(p)
}

// fatal are the counters of a requester and of a responder whose QP ends.
func fatal(more map[string]uint64) map[string]uint64 {
	out := map[string]uint64{"req_rx_cqe_err": 1, "req_rx_cqe_flush": 1, "resp_rx_cqe_flush": 1}
	maps.Copy(out, more)
	return out
}

func ended(more map[string]uint64) map[string]uint64 {
	out := map[string]uint64{"req_rx_cqe_flush": 1, "resp_rx_cqe_flush": 1}
	maps.Copy(out, more)
	return out
}

type tally = map[string]uint64

// Each kind of error moves its own counters, by its own number, and no other.
// They are read as the driver reads them.
func TestCounters_EachErrorMovesItsOwn(t *testing.T) {
	isRequest := func(p *packet.Packet) bool { return p.Op.IsRequest() }
	isAnswer := func(p *packet.Packet) bool { return !p.Op.IsRequest() }
	for _, s := range []struct {
		name string
		run  func(c *counted)
		a, b tally
	}{
		{
			"a request is lost between others: sequence error",
			func(c *counted) {
				c.lose(0, isRequest)
				for range 3 {
					c.pa.postSend(c.write())
				}
			},
			tally{"req_rx_pkt_seq_err": 1, "tx_rdma_retx_pkts": 3, "tx_rdma_retx_bytes": 24},
			tally{"resp_rx_outouf_seq": 2, "resp_tx_pkt_seq_err": 1},
		}, {
			"an acknowledgement is lost: timeout and duplicate request",
			func(c *counted) {
				c.lose(0, isAnswer)
				c.pa.postSend(c.write())
			},
			tally{"tx_rdma_ack_timeout": 1, "tx_rdma_retx_pkts": 1, "tx_rdma_retx_bytes": 8},
			tally{"resp_rx_dup_request": 1},
		}, {
			"an acknowledgement comes again: duplicate response",
			func(c *counted) {
				c.pa.postSend(c.write())
				c.a.settle()
				c.forge(packet.Header{Op: packet.Ack, Syndrome: packet.Positive, PSN: c.pa.id * 7})
			},
			tally{"req_rx_dup_response": 1}, tally{},
		}, {
			"the answer to a READ is lost before another: implied NAK",
			func(c *counted) {
				c.lose(0, isAnswer)
				c.pa.postSend(c.read(8))
				c.pa.postSend(c.read(8))
			},
			tally{"req_rx_impl_nak_seq_err": 1, "tx_rdma_retx_pkts": 2}, tally{"resp_rx_dup_request": 2},
		}, {
			"an acknowledgement of what was never sent",
			func(c *counted) {
				c.forge(packet.Header{Op: packet.Ack, Syndrome: packet.Positive, PSN: c.pa.id*7 + 100})
			},
			tally{"req_rx_inval_pkts": 1}, tally{},
		}, {
			"no receive for a while: RNR NAK",
			func(c *counted) {
				c.pa.postSend(c.pa.send(abi.OpSend, sge{c.src, 8, c.skey}))
				c.a.settle()
				c.pb.postRecv(1, sge{c.dst, 64, c.dkey})
			},
			tally{"req_rx_rnr_retry_err": 1, "tx_rdma_retx_pkts": 1, "tx_rdma_retx_bytes": 8},
			tally{"resp_rx_outof_buf": 1, "resp_tx_rnr_retry_err": 1},
		}, {
			"a key of the peer that is not there: access error",
			func(c *counted) { c.pa.postSend(c.write().remote(c.dst, c.dkey+1)) },
			fatal(tally{"req_rx_rmt_acc_err": 1}), ended(tally{"resp_tx_rmt_acc_err": 1}),
		}, {
			"a misaligned atomic: invalid request",
			func(c *counted) { c.pa.postSend(c.fetchAdd(c.dst + 4)) },
			fatal(tally{"req_rx_rmt_req_err": 1}), ended(tally{"resp_rx_inval_request": 1, "resp_tx_rmt_inval_req_err": 1}),
		}, {
			"a message longer than the receive: length error",
			func(c *counted) {
				c.pb.postRecv(1, sge{c.dst, 7, c.dkey})
				c.pa.postSend(c.pa.send(abi.OpSend, sge{c.src, 8, c.skey}))
			},
			fatal(tally{"req_rx_rmt_req_err": 1}),
			ended(tally{"resp_rx_loc_len_err": 1, "resp_tx_rmt_inval_req_err": 1, "resp_rx_cqe_err": 1}),
		}, {
			"a receive with a bad key: operation error",
			func(c *counted) {
				c.pb.postRecv(1, sge{c.dst, 64, c.dkey + 1})
				c.pa.postSend(c.pa.send(abi.OpSend, sge{c.src, 8, c.skey}))
			},
			fatal(tally{"req_rx_oper_err": 1}),
			ended(tally{"resp_rx_loc_oper_err": 1, "resp_tx_rmt_oper_err": 1, "resp_rx_cqe_err": 1}),
		}, {
			"a send with a bad key: local access error",
			func(c *counted) { c.pa.postSend(c.pa.send(abi.OpSend, sge{c.src, 8, c.skey + 1})) },
			fatal(tally{"req_tx_loc_acc_err": 1}), tally{},
		}, {
			"an operation that is none: local operation error",
			func(c *counted) { c.pa.postSend(c.write().u8(abi.WQEOp, 99)) },
			fatal(tally{"req_tx_loc_oper_err": 1}), tally{},
		}, {
			"an invalidation that is refused: memory management error",
			func(c *counted) { c.pa.postSend(c.pa.send(abi.OpLocalInv).u32(abi.WQEImm, c.skey)) },
			fatal(tally{"req_tx_mem_mgmt_err": 1}), tally{},
		}, {
			"more atomics than the responder takes",
			func(c *counted) {
				c.b.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1 << 17, RSQDepth: 0, ID: c.pb.id})
				c.pa.postSend(c.fetchAdd(c.dst))
			},
			fatal(tally{"req_rx_rmt_req_err": 1}),
			ended(tally{"resp_rx_outof_atomic": 1, "resp_rx_inval_request": 1, "resp_tx_rmt_inval_req_err": 1}),
		}, {
			"the peer has gone: retries",
			func(c *counted) {
				c.pb.destroy()
				c.pa.postSend(c.write())
			},
			fatal(tally{"tx_rdma_ack_timeout": 30, "req_tx_retry_excd_err": 1, "tx_rdma_retx_pkts": 29, "tx_rdma_retx_bytes": 232}),
			tally{"rx_rdma_drop_no_qp": 30},
		}, {
			"the peer is not ready to receive packets",
			func(c *counted) {
				c.b.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 0, ID: c.pb.id})
				c.pa.postSend(c.write())
			},
			fatal(tally{"tx_rdma_ack_timeout": 30, "req_tx_retry_excd_err": 1, "tx_rdma_retx_pkts": 29, "tx_rdma_retx_bytes": 232}),
			tally{"rx_rdma_drop_qp_state": 30},
		}, {
			"a refusal comes after its request has succeeded",
			func(c *counted) {
				c.pa.postSend(c.write())
				c.a.settle()
				c.forge(packet.Header{Op: packet.Ack, Syndrome: packet.NakSequence, PSN: c.pa.id * 7})
			},
			tally{"req_rx_dup_response": 1}, tally{},
		}, {
			"a refusal of no known kind",
			func(c *counted) {
				c.lose(0, isAnswer)
				c.pa.postSend(c.write())
				c.a.settle()
				c.forge(packet.Header{Op: packet.Ack, Syndrome: packet.NakRemoteOperation + 9, PSN: c.pa.id * 7})
			},
			tally{"req_rx_inval_pkts": 1, "tx_rdma_ack_timeout": 1, "tx_rdma_retx_pkts": 1, "tx_rdma_retx_bytes": 8},
			tally{"resp_rx_dup_request": 1},
		}, {
			"an atomic comes again that the responder has forgotten",
			func(c *counted) {
				c.b.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1 << 17, RSQDepth: 1, ID: c.pb.id})
				for range 2 {
					c.pa.postSend(c.fetchAdd(c.dst))
					c.a.settle()
				}
				p := packet.Get(0)
				p.Header = packet.Header{
					Op: packet.FetchAdd, Flags: packet.First | packet.Last, SrcQPN: c.pa.id, DstQPN: c.pb.id, PSN: c.pa.id * 7, Count: 1,
					SrcGID: [16]byte{10: 0xff, 11: 0xff, 12: 0xc0, 13: 0xa8, 14: 0xc8, 15: c.a.mac[5]},
				}
				c.b.engine.Deliver(p)
			},
			tally{}, tally{"resp_rx_dup_request": 1, "resp_rx_outof_atomic": 1},
		}, {
			"a datagram for a receive with a bad key: operation error",
			func(c *counted) {
				p, r := c.a.datagramQP(qpOptions{}, 7), c.b.datagramQP(qpOptions{}, 7)
				c.a.createAH(30, 0, templates(c.a, c.b)["IPv4"])
				r.postRecv(1, sge{c.dst, 64, c.dkey + 1})
				p.postSend(p.sendTo(30, r.id, 7, sge{c.src, 8, c.skey}))
			},
			tally{}, ended(tally{"resp_rx_loc_oper_err": 1, "resp_rx_cqe_err": 1}),
		}, {
			"an unreliable message for a receive with a bad key: operation error",
			func(c *counted) {
				p, r := c.a.createQP(qpOptions{typ: abi.TypeUC}), c.b.createQP(qpOptions{typ: abi.TypeUC})
				p.connect(r)
				r.connect(p)
				r.postRecv(1, sge{c.dst, 64, c.dkey + 1})
				p.postSend(p.send(abi.OpSend, sge{c.src, 8, c.skey}))
			},
			tally{}, ended(tally{"resp_rx_loc_oper_err": 1, "resp_rx_cqe_err": 1}),
		}, {
			"an answer finds nobody: it looks like loss",
			func(c *counted) {
				answers := 0
				c.f.filter(func(p *packet.Packet) qp.Verdict {
					if answers > 0 || p.Op.IsRequest() {
						return qp.Sent
					}
					answers++
					return qp.Lost
				})
				c.pa.postSend(c.write())
			},
			tally{"tx_rdma_ack_timeout": 1, "tx_rdma_retx_pkts": 1, "tx_rdma_retx_bytes": 8},
			tally{"tx_rdma_drop_no_route": 1, "resp_rx_dup_request": 1},
		}, {
			"an acknowledgement for who does not send yet",
			func(c *counted) {
				x := c.a.createQP(qpOptions{})
				x.toInit()
				x.toRTR(c.pb)
				c.forgeTo(x.id, packet.Header{Op: packet.Ack, Syndrome: packet.Positive})
			},
			tally{"rx_rdma_drop_qp_state": 1}, tally{},
		}, {
			"a link that stays full for a datagram",
			func(c *counted) {
				p := c.a.datagramQP(qpOptions{}, 7)
				c.a.createAH(30, 0, templates(c.a, c.b)["IPv4"])
				c.f.filter(func(*packet.Packet) qp.Verdict { return qp.Full })
				c.pa.n.settle()
				p.postSend(p.sendTo(30, 1, 7, sge{c.src, 8, c.skey}))
			},
			tally{"tx_rdma_drop_link_full": 1}, tally{},
		}, {
			"a stranger answers",
			func(c *counted) {
				p := packet.Get(0)
				p.Header = packet.Header{Op: packet.Ack, SrcQPN: 4711, DstQPN: c.pa.id, Count: 1}
				c.a.engine.Deliver(p)
			},
			tally{"rx_rdma_drop_source": 1}, tally{},
		},
	} {
		t.Run(s.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCounted(t)
				before := [2]tally{c.a.counters(), c.b.counters()}
				s.run(c)
				time.Sleep(5 * second)
				c.a.settle()
				for _, side := range []struct {
					name string
					n    *node
					was  tally
					want tally
				}{{"requester", c.a, before[0], s.a}, {"responder", c.b, before[1], s.b}} {
					if got := side.n.errorCounters(side.was); !maps.Equal(got, side.want) {
						t.Errorf("counters of the %s\n got %v\nwant %v", side.name, got, side.want)
					}
				}
			})
		})
	}
}

// What comes for a queue pair whose answers do not leave is kept up to a bound;
// beyond it each packet is counted.
func TestCounters_PacketsBeyondTheInbox(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCounted(t)
		before := c.b.counters()
		c.f.filter(func(p *packet.Packet) qp.Verdict {
			if p.Op.IsRequest() {
				return qp.Sent
			}
			return qp.Full
		})
		c.pa.postSend(c.read(8))
		c.b.settle()
		const half, sent = 4096, 3 * 4096
		for i := range uint32(sent) {
			p := packet.Get(0)
			p.Header = packet.Header{Op: packet.Write, SrcQPN: c.pa.id, DstQPN: c.pb.id, PSN: 100 + i, Count: 1}
			c.b.engine.Deliver(p)
		}
		c.b.settle()
		c.b.engine.Writable(nil) // it is still full
		c.b.settle()
		got := c.b.errorCounters(before)
		n := got["rx_rdma_drop_inbox"]
		if len(got) != 1 || n < sent-2*half || n > sent-half {
			t.Errorf("counters %v, want between %d and %d packets beyond the inbox", got, sent-2*half, sent-half)
		}
	})
}

// The list is the one the guest's tools know: every name once, none cut.
func TestCounters_TheFamilyIsComplete(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		have := n.counters()
		for name := range strings.FieldsSeq(`
			tx_rdma_ucast_bytes tx_rdma_ucast_pkts tx_rdma_mcast_bytes tx_rdma_mcast_pkts tx_rdma_cnp_pkts
			rx_rdma_ucast_bytes rx_rdma_ucast_pkts rx_rdma_mcast_bytes rx_rdma_mcast_pkts rx_rdma_cnp_pkts rx_rdma_ecn_pkts
			req_rx_pkt_seq_err req_rx_rnr_retry_err req_rx_rmt_acc_err req_rx_rmt_req_err req_rx_oper_err req_rx_impl_nak_seq_err
			req_rx_cqe_err req_rx_cqe_flush req_rx_dup_response req_rx_inval_pkts
			req_tx_loc_acc_err req_tx_loc_oper_err req_tx_mem_mgmt_err req_tx_retry_excd_err req_tx_loc_sgl_inv_err
			resp_rx_dup_request resp_rx_outof_buf resp_rx_outouf_seq resp_rx_cqe_err resp_rx_cqe_flush resp_rx_loc_len_err
			resp_rx_inval_request resp_rx_loc_oper_err resp_rx_outof_atomic
			resp_tx_pkt_seq_err resp_tx_rmt_inval_req_err resp_tx_rmt_acc_err resp_tx_rmt_oper_err resp_tx_rnr_retry_err
			resp_tx_loc_sgl_inv_err resp_rx_s0_table_err
			tx_rdma_ack_timeout tx_rdma_retx_bytes tx_rdma_retx_pkts rx_rdma_mtu_discard_pkts
			tx_rdma_ccl_cts_bytes tx_rdma_ccl_cts_pkts rx_rdma_ccl_cts_bytes rx_rdma_ccl_cts_pkts
			tx_rdma_ccl_cts_retx_bytes tx_rdma_ccl_cts_retx_pkts tx_rdma_ccl_cts_ack_timeout resp_rx_ccl_cts_outouf_seq`) {
			if _, ok := have[name]; !ok {
				t.Errorf("%s is not among the counters", name)
			}
		}
	})
}
