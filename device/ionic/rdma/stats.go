// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/cq"
	"github.com/ernic-dev/ernic/device/ionic/rdma/eq"
	"github.com/ernic-dev/ernic/device/ionic/rdma/mr"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// stats are the counters of an engine: those of living QPs are in the QPs.
type stats struct {
	mu      sync.Mutex // guards both, and keeps a QP from being counted twice or not at all
	retired [qp.NumCounters]uint64
	life    *lif // whose QPs are counted beside the retired ones

	loose         [qp.NumCounters]atomic.Uint64 // counted without a QP
	faults        [mr.NumFaults]atomic.Uint64   // refused accesses by reason
	badDoorbells  atomic.Uint64
	commandErrors atomic.Uint64
	adminErrors   atomic.Uint64
	events        eq.Totals
	completions   cq.Totals
}

func (s *stats) count(c qp.Counter) { s.loose[c].Add(1) }

// retire takes a QP out of its table and keeps what it counted; false when it
// is not there.
func (s *stats) retire(l *lif, q *queuePair) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.qps.RemoveIf(q.id, q) {
		return false
	}
	for i := range s.retired {
		s.retired[i] += q.counters[i].Load()
	}
	return true
}

// turn goes from an ended life to a new one and keeps what was counted.
func (s *stats) turn(old, life *lif) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old.addTo(&s.retired)
	old.qps.Clear()
	s.life = life
}

// addTo adds up the counters of all QPs.
func (l *lif) addTo(v *[qp.NumCounters]uint64) {
	l.qps.All(func(_ uint32, q *queuePair) bool {
		for i := range v {
			v[i] += q.counters[i].Load()
		}
		return true
	})
}

// clear sets every counter to zero, as a device reset does.
func (s *stats) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = [qp.NumCounters]uint64{}
	for i := range s.loose {
		s.loose[i].Store(0)
	}
	for _, c := range s.device() {
		c.v.Store(0)
	}
}

// device are the counters that no QP counts, under the names they are reported
// by.
func (s *stats) device() []named {
	list := []named{
		{"rdma_bad_doorbells", &s.badDoorbells}, {"rdma_lif_command_errors", &s.commandErrors}, {"rdma_admin_errors", &s.adminErrors},
		{"rdma_events_waited", &s.events.Waited}, {"rdma_events_lost", &s.events.Lost},
		{"rdma_completions_waited", &s.completions.Waited}, {"rdma_completions_lost", &s.completions.Lost},
		{"rdma_cq_overflows", &s.completions.Overflows},
	}
	for f := mr.OK + 1; f < mr.NumFaults; f++ {
		list = append(list, named{"rdma_fault_" + f.Name(), &s.faults[f]})
	}
	return list
}

type named struct {
	name string
	v    *atomic.Uint64
}

// sum adds up the counters of all QPs, living and gone.
func (e *Engine) sum() (v [qp.NumCounters]uint64) {
	s := &e.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	v = s.retired
	for i := range v {
		v[i] += s.loose[i].Load()
	}
	s.life.addTo(&v)
	return v
}

// counter is a published hw_counter.
type counter struct {
	name  string
	off   uint32     // in the values, below abi.LIFStatsLen its place in struct ionic_lif_stats
	from  qp.Counter // NumCounters: an event this device never has, always 0
	ofLIF bool       // not counted per QP
}

const never = qp.NumCounters

// counters are the hw_counters in the order of their list. Those without a
// field in struct ionic_lif_stats follow it.
var counters = [...]counter{
	{"tx_rdma_ucast_bytes", 384, qp.TxBytes, false},
	{"tx_rdma_ucast_pkts", 392, qp.TxPackets, false},
	{"tx_rdma_mcast_bytes", 400, never, true},
	{"tx_rdma_mcast_pkts", 408, never, true},
	{"tx_rdma_cnp_pkts", 416, never, true},
	{"rx_rdma_ucast_bytes", 448, qp.RxBytes, false},
	{"rx_rdma_ucast_pkts", 456, qp.RxPackets, false},
	{"rx_rdma_mcast_bytes", 464, never, true},
	{"rx_rdma_mcast_pkts", 472, never, true},
	{"rx_rdma_cnp_pkts", 480, never, true},
	{"rx_rdma_ecn_pkts", 488, never, true},
	{"req_rx_pkt_seq_err", 768, qp.ReqPktSeqErr, false},
	{"req_rx_rnr_retry_err", 776, qp.ReqRNRRetryErr, false},
	{"req_rx_rmt_acc_err", 784, qp.ReqRemoteAccessErr, false},
	{"req_rx_rmt_req_err", 792, qp.ReqRemoteInvReqErr, false},
	{"req_rx_oper_err", 800, qp.ReqRemoteOperErr, false},
	{"req_rx_impl_nak_seq_err", 808, qp.ReqImpliedNak, false},
	{"req_rx_cqe_err", 816, qp.ReqCQEErr, false},
	{"req_rx_cqe_flush", 824, qp.ReqCQEFlush, false},
	{"req_rx_dup_response", 832, qp.ReqDupResponse, false},
	{"req_rx_inval_pkts", 840, qp.ReqInvalidPkt, false},
	{"req_tx_loc_acc_err", 848, qp.ReqLocalAccessErr, false},
	{"req_tx_loc_oper_err", 856, qp.ReqLocalOperErr, false},
	{"req_tx_mem_mgmt_err", 864, qp.ReqMemMgmtErr, false},
	{"req_tx_retry_excd_err", 1024, qp.ReqRetryExceeded, false},
	{"req_tx_loc_sgl_inv_err", 1032, never, true},
	{"resp_rx_dup_request", 896, qp.RespDupRequest, false},
	{"resp_rx_outof_buf", 904, qp.RespOutOfBuffer, false},
	{"resp_rx_outouf_seq", 912, qp.RespOutOfSeq, false},
	{"resp_rx_cqe_err", 920, qp.RespCQEErr, false},
	{"resp_rx_cqe_flush", 928, qp.RespCQEFlush, false},
	{"resp_rx_loc_len_err", 936, qp.RespLocalLenErr, false},
	{"resp_rx_inval_request", 944, qp.RespInvRequest, false},
	{"resp_rx_loc_oper_err", 952, qp.RespLocalOperErr, false},
	{"resp_rx_outof_atomic", 960, qp.RespOutOfAtomic, false},
	{"resp_tx_pkt_seq_err", 968, qp.RespTxPktSeqErr, false},
	{"resp_tx_rmt_inval_req_err", 976, qp.RespTxInvReqErr, false},
	{"resp_tx_rmt_acc_err", 984, qp.RespTxAccessErr, false},
	{"resp_tx_rmt_oper_err", 992, qp.RespTxOperErr, false},
	{"resp_tx_rnr_retry_err", 1000, qp.RespTxRNR, false},
	{"resp_tx_loc_sgl_inv_err", 1040, never, true},
	{"resp_rx_s0_table_err", 1048, never, true},
	{"tx_rdma_ack_timeout", 1056, qp.ReqAckTimeout, false},
	{"tx_rdma_retx_bytes", 1064, qp.ReqRetransmitBytes, false},
	{"tx_rdma_retx_pkts", 1072, qp.ReqRetransmitPkts, false},
	{"rx_rdma_mtu_discard_pkts", 1080, qp.DropTooLong, false},
	{"rx_rdma_drop_no_qp", 1088, qp.DropNoQP, false},
	{"rx_rdma_drop_qp_state", 1096, qp.DropState, false},
	{"rx_rdma_drop_qkey", 1104, qp.DropQKey, false},
	{"rx_rdma_drop_no_buffer", 1112, qp.DropNoBuffer, false},
	{"rx_rdma_drop_inbox", 1120, qp.DropInbox, false},
	{"rx_rdma_drop_source", 1128, qp.DropSource, false},
	{"tx_rdma_drop_no_ah", 1136, qp.DropNoAH, false},
	{"tx_rdma_drop_no_route", 1144, qp.DropNoRoute, false},
	{"tx_rdma_drop_link_full", 1152, qp.DropFull, false},
	// Of an offload of collective libraries that this device does not offer;
	// tools that read the family find it.
	{"tx_rdma_ccl_cts_bytes", 1160, never, true},
	{"tx_rdma_ccl_cts_pkts", 1168, never, true},
	{"rx_rdma_ccl_cts_bytes", 1176, never, true},
	{"rx_rdma_ccl_cts_pkts", 1184, never, true},
	{"tx_rdma_ccl_cts_retx_bytes", 1192, never, true},
	{"tx_rdma_ccl_cts_retx_pkts", 1200, never, true},
	{"tx_rdma_ccl_cts_ack_timeout", 1208, never, true},
	{"resp_rx_ccl_cts_outouf_seq", 1216, never, true},
}

// valuesLen is the size of all values.
const valuesLen = 1224

// fill writes the values below len(b) at their offsets.
func fill(b []byte, v *[qp.NumCounters]uint64) {
	for i := range counters {
		c := &counters[i]
		if c.from == never || int(c.off)+8 > len(b) {
			continue
		}
		binary.LittleEndian.PutUint64(b[c.off:], v[c.from])
	}
}

// StatsInto writes the RDMA counters at their places of the 1024-byte block
// struct ionic_lif_stats. Other bytes do not change.
func (e *Engine) StatsInto(block []byte) {
	v := e.sum()
	fill(block[:abi.LIFStatsLen], &v)
}

func (l *lif) adminStatsHeaders(b []byte) error {
	return l.statsHeaders(b, func(*counter) bool { return true })
}

func (l *lif) adminQPStatsHeaders(b []byte) error {
	return l.statsHeaders(b, func(c *counter) bool { return !c.ofLIF })
}

// statsHeaders writes the list of counters, ended by an entry of type 0 where
// the buffer has room for it.
func (l *lif) statsHeaders(b []byte, publish func(*counter) bool) error {
	var c abi.Stats
	c.Get(b)
	var list [(len(counters) + 1) * abi.StatLen]byte
	n := 0
	for i := range counters {
		if !publish(&counters[i]) {
			continue
		}
		(&abi.Stat{Type: abi.StatLE64, Offset: counters[i].off, Name: counters[i].name}).Put(list[n:])
		n += abi.StatLen
	}
	return l.statsWrite(&c, list[:n+abi.StatLen])
}

func (l *lif) adminStatsValues(b []byte) error {
	var c abi.Stats
	c.Get(b)
	v := l.engine.sum()
	var values [valuesLen]byte
	fill(values[:], &v)
	return l.statsWrite(&c, values[:])
}

func (l *lif) adminQPStatsValues(b []byte) error {
	var c abi.Stats
	c.Get(b)
	q := l.qps.Get(c.ID)
	if q == nil {
		return abi.Refuse(abi.AdminBadIndex, "statistics of QP %d: does not exist", c.ID)
	}
	var v [qp.NumCounters]uint64
	for i := range v {
		v[i] = q.counters[i].Load()
	}
	var values [valuesLen]byte
	fill(values[:], &v)
	return l.statsWrite(&c, values[:])
}

// statsWrite writes what fits into the guest's buffer.
func (l *lif) statsWrite(c *abi.Stats, b []byte) error {
	b = b[:min(uint64(len(b)), uint64(c.Length))]
	if err := l.mem.WriteAt(b, c.DMA); err != nil {
		return abi.Refuse(abi.AdminBadAttr, "statistics: %v", err)
	}
	return nil
}
