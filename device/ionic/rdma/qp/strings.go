// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"fmt"
	"strings"
)

// String names the type.
func (t Type) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

var sendOpNames = [numSendOps]string{
	OpSend: "SEND", OpSendInv: "SEND_INV", OpSendImm: "SEND_IMM",
	OpRead: "READ", OpWrite: "WRITE", OpWriteImm: "WRITE_IMM",
	OpCompareSwap: "CMP_SWP", OpFetchAdd: "FETCH_ADD",
	OpRegMR: "REG_MR", OpLocalInv: "LOCAL_INV", OpBindMW: "BIND_MW",
}

// String names the operation.
func (o Op) String() string {
	if o < numSendOps {
		return sendOpNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

var statusNames = [...]string{
	OK: "OK", LocalLenErr: "LOCAL_LEN_ERR", LocalQPOperErr: "LOCAL_QP_OPER_ERR",
	LocalProtErr: "LOCAL_PROT_ERR", Flushed: "WQE_FLUSHED_ERR",
	MemMgmtErr: "MEM_MGMT_OPER_ERR", BadRespErr: "BAD_RESP_ERR",
	LocalAccErr: "LOCAL_ACC_ERR", RemoteInvReqErr: "REMOTE_INV_REQ_ERR",
	RemoteAccErr: "REMOTE_ACC_ERR", RemoteOperErr: "REMOTE_OPER_ERR",
	RetryExceeded: "RETRY_EXCEEDED", RNRRetryExceeded: "RNR_RETRY_EXCEEDED",
}

// String names the status as ionic_fw.h does.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

var recvOpNames = [...]string{
	RecvSend: "SEND", RecvSendInv: "SEND_INV", RecvSendImm: "SEND_IMM", RecvWriteImm: "WRITE_IMM",
}

// String names the operation.
func (o RecvOp) String() string {
	if int(o) < len(recvOpNames) {
		return recvOpNames[o]
	}
	return fmt.Sprintf("recvop(%d)", uint8(o))
}

var stateNames = [...]string{
	Reset: "RESET", Init: "INIT", RTR: "RTR", RTS: "RTS", SQD: "SQD", SQE: "SQE", Err: "ERR",
}

// String names the state.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// String names the event.
func (e Event) String() string {
	switch e {
	case EventSQDrained:
		return "SQ_DRAINED"
	case EventCommEst:
		return "COMM_EST"
	case EventQPFatal:
		return "QP_FATAL"
	case EventRequestErr:
		return "REQ_ERR"
	case EventAccessErr:
		return "ACCESS_ERR"
	}
	return fmt.Sprintf("event(%d)", uint8(e))
}

// String names the verdict.
func (v Verdict) String() string {
	switch v {
	case Sent:
		return "sent"
	case Full:
		return "full"
	case Lost:
		return "lost"
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

var maskNames = []struct {
	bit  Mask
	name string
}{
	{MaskState, "STATE"}, {MaskCurState, "CUR_STATE"}, {MaskSQDNotify, "SQD_NOTIFY"},
	{MaskAccess, "ACCESS"}, {1 << 4, "PKEY"}, {1 << 5, "PORT"}, {MaskQKey, "QKEY"},
	{MaskAV, "AV"}, {MaskPathMTU, "PATH_MTU"}, {MaskTimeout, "TIMEOUT"},
	{MaskRetryCnt, "RETRY_CNT"}, {MaskRNRRetry, "RNR_RETRY"}, {MaskRQPSN, "RQ_PSN"},
	{MaskMaxRead, "MAX_QP_RD_ATOMIC"}, {MaskMinRNRTimer, "MIN_RNR_TIMER"},
	{MaskSQPSN, "SQ_PSN"}, {MaskMaxDestRead, "MAX_DEST_RD_ATOMIC"},
	{MaskDestQPN, "DEST_QPN"}, {MaskRateLimit, "RATE_LIMIT"},
}

// String lists the attributes of the mask, "0" when there are none.
func (m Mask) String() string {
	if m == 0 {
		return "0"
	}
	var set []string
	for _, n := range maskNames {
		if m&n.bit != 0 {
			set = append(set, n.name)
			m &^= n.bit
		}
	}
	if m != 0 {
		set = append(set, fmt.Sprintf("%#x", uint32(m)))
	}
	return strings.Join(set, "|")
}

// String lists the rights, "-" when there are none.
func (a Access) String() string {
	if a == 0 {
		return "-"
	}
	var set []string
	for i, name := range []string{"remote_write", "remote_read", "remote_atomic"} {
		if a&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	if rest := a &^ (RemoteWrite | RemoteRead | RemoteAtomic); rest != 0 {
		set = append(set, fmt.Sprintf("%#x", uint8(rest)))
	}
	return strings.Join(set, "|")
}

var counterNames = [NumCounters]string{
	TxBytes: "tx_bytes", TxPackets: "tx_packets", RxBytes: "rx_bytes", RxPackets: "rx_packets",
	ReqPktSeqErr: "req_rx_pkt_seq_err", ReqRNRRetryErr: "req_rx_rnr_retry_err",
	ReqRemoteAccessErr: "req_rx_rmt_acc_err", ReqRemoteInvReqErr: "req_rx_rmt_req_err",
	ReqRemoteOperErr: "req_rx_oper_err", ReqImpliedNak: "req_rx_impl_nak_seq_err",
	ReqCQEErr: "req_rx_cqe_err", ReqCQEFlush: "req_rx_cqe_flush",
	ReqDupResponse: "req_rx_dup_response", ReqInvalidPkt: "req_rx_inval_pkts",
	ReqLocalAccessErr: "req_tx_loc_acc_err", ReqLocalOperErr: "req_tx_loc_oper_err",
	ReqMemMgmtErr: "req_tx_mem_mgmt_err", ReqRetryExceeded: "req_tx_retry_excd_err",
	ReqAckTimeout: "tx_rdma_ack_timeout", ReqRetransmitBytes: "tx_rdma_retx_bytes",
	ReqRetransmitPkts: "tx_rdma_retx_pkts",
	RespDupRequest:    "resp_rx_dup_request", RespOutOfBuffer: "resp_rx_outof_buf",
	RespOutOfSeq: "resp_rx_outouf_seq", RespCQEErr: "resp_rx_cqe_err",
	RespCQEFlush: "resp_rx_cqe_flush", RespLocalLenErr: "resp_rx_loc_len_err",
	RespInvRequest: "resp_rx_inval_request", RespLocalOperErr: "resp_rx_loc_oper_err",
	RespOutOfAtomic: "resp_rx_outof_atomic", RespTxPktSeqErr: "resp_tx_pkt_seq_err",
	RespTxInvReqErr: "resp_tx_rmt_inval_req_err", RespTxAccessErr: "resp_tx_rmt_acc_err",
	RespTxOperErr: "resp_tx_rmt_oper_err", RespTxRNR: "resp_tx_rnr_retry_err",
	DropNoQP: "drop_no_qp", DropState: "drop_state", DropQKey: "drop_qkey",
	DropNoBuffer: "drop_no_buffer", DropTooLong: "drop_too_long", DropInbox: "drop_inbox",
	DropNoAH: "drop_no_ah", DropNoRoute: "drop_no_route", DropFull: "drop_full",
	DropSource: "drop_source",
}

// String is the hw_counter name where there is one, else the name under which
// the drop is reported.
func (c Counter) String() string {
	if c < NumCounters {
		return counterNames[c]
	}
	return fmt.Sprintf("counter(%d)", uint8(c))
}
