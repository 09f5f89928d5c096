// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// untilError posts one SEND and waits for its completion. It returns how long
// that took and what the completion says.
func (p *pair) untilError(limit time.Duration) (time.Duration, qp.Status) {
	n := p.n
	n.t.Helper()
	src, key := n.region(4096, 0, mrAll)
	begin := time.Now()
	p.postSend(p.send(abi.OpSend, sge{src, 8, key}))
	for time.Since(begin) < limit {
		n.settle()
		if c, ok := n.poll(p.scq); ok {
			return time.Since(begin), qp.Status(c.StatusLength)
		}
		// The next timer of anybody; the clock stands still meanwhile.
		time.Sleep(time.Microsecond)
	}
	n.t.Fatalf("no completion within %v", limit)
	return 0, 0
}

// impatient returns a queue pair in RTS with these limits, and its peer on another
// node, which is not connected to it yet.
func impatient(t *testing.T, timeout, retries, rnr uint8) (f *fabric, pa, pb *pair) {
	t.Helper()
	f = newFabric()
	a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
	a.probe()
	b.probe()
	pa, pb = a.createQP(qpOptions{}), b.createQP(qpOptions{})
	pa.toInit()
	pa.toRTR(pb)
	pa.toRTSWith(timeout, retries, rnr)
	return f, pa, pb
}

// A guest whose peer never answers hears of it after four times retry_cnt+1
// times the timeout it has set, to the microsecond.
func TestP9_TimeoutTimesRetryCountIsExact(t *testing.T) {
	for _, timeout := range []uint8{6, 8, 10, 12} {
		for _, retries := range []uint8{0, 1, 3, 7} {
			t.Run(fmt.Sprintf("timeout=%d,retry_cnt=%d", timeout, retries), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f, pa, _ := impatient(t, timeout, retries, 7)
					sent := 0
					f.filter(func(*packet.Packet) qp.Verdict { sent++; return qp.Lost })
					tries := 4 * (uint64(retries) + 1)
					want := time.Duration(tries) * qp.AckTimeout(timeout)
					got, st := pa.untilError(2 * want)
					if st != qp.RetryExceeded {
						t.Fatalf("the completion says %v", st)
					}
					if got < want || got > want+2*time.Microsecond {
						t.Errorf("told after %v, want %v", got, want)
					}
					if sent != int(tries) {
						t.Errorf("sent %d times, want %d", sent, tries)
					}
					for name, want := range map[string]uint64{
						"tx_rdma_ack_timeout": tries, "tx_rdma_retx_pkts": tries - 1,
						"tx_rdma_retx_bytes": 8 * (tries - 1), "req_tx_retry_excd_err": 1,
					} {
						if got := pa.n.metric(name); got != want {
							t.Errorf("%s is %d, want %d", name, got, want)
						}
					}
				})
			})
		}
	}
}

// A peer without a receive costs rnr_retry waits of its own RNR timer, then
// the error; 7 waits for ever.
func TestP8_RNRTimesRetryCountIsExact(t *testing.T) {
	for _, rnr := range []uint8{0, 1, 6} {
		t.Run(fmt.Sprintf("rnr_retry=%d", rnr), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, pa, pb := impatient(t, 14, 7, rnr)
				pb.connect(pa)
				want := time.Duration(rnr) * qp.RNRTimer(12) // of toRTR
				got, st := pa.untilError(second)
				if st != qp.RNRRetryExceeded {
					t.Fatalf("the completion says %v", st)
				}
				if got < want || got > want+2*time.Microsecond {
					t.Errorf("told after %v, want %v", got, want)
				}
				if n := pa.n.metric("req_rx_rnr_retry_err"); n != uint64(rnr)+1 {
					t.Errorf("%d RNR NAKs counted by the requester, want %d", n, rnr+1)
				}
				if n := pb.n.metric("resp_tx_rnr_retry_err"); n != uint64(rnr)+1 {
					t.Errorf("%d RNR NAKs counted by the responder, want %d", n, rnr+1)
				}
				if n := pb.n.metric("resp_rx_outof_buf"); n != uint64(rnr)+1 {
					t.Errorf("%d messages without a receive, want %d", n, rnr+1)
				}
			})
		})
	}
}

// A link that takes packets and never sends them is no excuse: the guest hears
// of a cut cable as of a silent peer.
func TestTimeout_StuckLinkIsExactToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, pa, _ := impatient(t, 10, 2, 7)
		var stuck []*packet.Packet
		f.setStuck(func(p *packet.Packet) { stuck = append(stuck, p) })
		want := 4 * 3 * qp.AckTimeout(10)
		got, st := pa.untilError(second)
		if st != qp.RetryExceeded || got < want || got > want+2*time.Microsecond {
			t.Errorf("%v after %v, want %v after %v", st, got, qp.RetryExceeded, want)
		}
		for _, p := range stuck {
			p.Release()
		}
	})
}

// A way to the peer that is busy with the packets of another queue pair costs
// no retry as long as it moves.
func TestTimeout_BusyLinkCostsNoRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, pa, pb := impatient(t, 10, 0, 7)
		pb.connect(pa)
		other, peer := pa.n.createQP(qpOptions{depth: 10}), pb.n.createQP(qpOptions{})
		other.connect(peer)
		peer.connect(other)
		src, skey := pa.n.region(4096, 0, mrAll)
		dst, dkey := pb.n.region(4096, 0, mrAll)
		var waits []*packet.Packet
		f.setStuck(func(p *packet.Packet) {
			if p.SrcQPN == pa.id || p.DstQPN == pa.id {
				waits = append(waits, p) // behind those of the other
				return
			}
			f.byMAC(p).Deliver(p)
		})
		pa.postSend(pa.send(abi.OpWrite, sge{src, 8, skey}).remote(dst, dkey))
		for range 500 { // half a second; the timeout is 4 ms
			other.postSend(other.send(abi.OpWrite, sge{src, 8, skey}).remote(dst, dkey))
			time.Sleep(time.Millisecond)
			for _, ok := pa.n.poll(other.scq); ok; _, ok = pa.n.poll(other.scq) {
				pa.n.consumed(other.scq)
			}
		}
		pa.n.expect(pa.scq)
		f.setStuck(nil)
		for _, p := range waits {
			f.byMAC(p).Deliver(p)
		}
		pa.n.expect(pa.scq, msnCQE(1, pa.id))
		if n := pa.n.metric("tx_rdma_ack_timeout"); n != 0 {
			t.Errorf("%d timeouts", n)
		}
	})
}

// Four times the guest's limit may be long. More than 2 s it is only where the
// guest asks for more itself.
func TestP9_PatienceIsLimited(t *testing.T) {
	for _, c := range []struct {
		timeout, retries uint8
		want             time.Duration
	}{
		{14, 7, 30 * qp.AckTimeout(14)}, // 0.54 s are asked for, 2.01 s are the next multiple of a timeout
		{17, 3, 4 * qp.AckTimeout(17)},  // 2.15 s are asked for
	} {
		bubble(t, func(t *testing.T) {
			f, pa, _ := impatient(t, c.timeout, c.retries, 7)
			f.filter(func(*packet.Packet) qp.Verdict { return qp.Lost })
			got, st := pa.untilError(4 * second)
			if st != qp.RetryExceeded || got < c.want || got > c.want+2*time.Microsecond {
				t.Errorf("%v after %v, want %v after %v", st, got, qp.RetryExceeded, c.want)
			}
		})
	}
}
