// SPDX-License-Identifier: Apache-2.0

package qp

// Counter names an RDMA counter of the LIF block (struct ionic_lif_stats) that
// a QP moves.
type Counter uint8

// Counters a QP counts. The comment gives the ionic_if.h field.
const (
	TxBytes            Counter = iota // tx_rdma_ucast_bytes
	TxPackets                         // tx_rdma_ucast_packets, one per message
	RxBytes                           // rx_rdma_ucast_bytes
	RxPackets                         // rx_rdma_ucast_packets
	ReqPktSeqErr                      // rdma_req_rx_pkt_seq_err
	ReqRNRRetryErr                    // rdma_req_rx_rnr_retry_err
	ReqRemoteAccessErr                // rdma_req_rx_remote_access_err
	ReqRemoteInvReqErr                // rdma_req_rx_remote_inv_req_err
	ReqRemoteOperErr                  // rdma_req_rx_remote_oper_err
	ReqImpliedNak                     // rdma_req_rx_implied_nak_seq_err
	ReqCQEErr                         // rdma_req_rx_cqe_err
	ReqCQEFlush                       // rdma_req_rx_cqe_flush_err
	ReqDupResponse                    // rdma_req_rx_dup_responses
	ReqInvalidPkt                     // rdma_req_rx_invalid_packets
	ReqLocalAccessErr                 // rdma_req_tx_local_access_err
	ReqLocalOperErr                   // rdma_req_tx_local_oper_err
	ReqMemMgmtErr                     // rdma_req_tx_memory_mgmt_err
	ReqRetryExceeded                  // hw counter req_tx_retry_excd_err
	ReqAckTimeout                     // hw counter tx_rdma_ack_timeout
	ReqRetransmitBytes                // hw counter tx_rdma_retx_bytes
	ReqRetransmitPkts                 // hw counter tx_rdma_retx_pkts
	RespDupRequest                    // rdma_resp_rx_dup_requests
	RespOutOfBuffer                   // rdma_resp_rx_out_of_buffer
	RespOutOfSeq                      // rdma_resp_rx_out_of_seq_pkts
	RespCQEErr                        // rdma_resp_rx_cqe_err
	RespCQEFlush                      // rdma_resp_rx_cqe_flush_err
	RespLocalLenErr                   // rdma_resp_rx_local_len_err
	RespInvRequest                    // rdma_resp_rx_inv_request_err
	RespLocalOperErr                  // rdma_resp_rx_local_qp_oper_err
	RespOutOfAtomic                   // rdma_resp_rx_out_of_atomic_resource
	RespTxPktSeqErr                   // rdma_resp_tx_pkt_seq_err
	RespTxInvReqErr                   // rdma_resp_tx_remote_inv_req_err
	RespTxAccessErr                   // rdma_resp_tx_remote_access_err
	RespTxOperErr                     // rdma_resp_tx_remote_oper_err
	RespTxRNR                         // rdma_resp_tx_rnr_retry_err
	DropNoQP                          // packet for a QP that does not exist or has another type
	DropState                         // packet for a QP not in RTR, RTS or SQD
	DropQKey                          // datagram with a wrong Q_Key
	DropNoBuffer                      // UC or UD message without a receive
	DropTooLong                       // datagram longer than the receive
	DropInbox                         // packet beyond the bounded inbox
	DropNoAH                          // datagram sent through an unknown AH
	DropNoRoute                       // nobody answers for the destination
	DropFull                          // UC or UD packet given up on a link that stayed full
	DropSource                        // packet whose source is not the connected peer
	NumCounters
)
