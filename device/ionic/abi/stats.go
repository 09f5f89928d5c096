// SPDX-License-Identifier: Apache-2.0

package abi

// LIFStat is the quadword number of a counter in struct ionic_lif_stats.
type LIFStat uint8

// LIF counters. Numbers that are missing here are reserved and stay 0.
const (
	RxUcastBytes       LIFStat = 0
	RxUcastPackets     LIFStat = 1
	RxMcastBytes       LIFStat = 2
	RxMcastPackets     LIFStat = 3
	RxBcastBytes       LIFStat = 4
	RxBcastPackets     LIFStat = 5
	RxUcastDropBytes   LIFStat = 8
	RxUcastDropPackets LIFStat = 9
	RxMcastDropBytes   LIFStat = 10
	RxMcastDropPackets LIFStat = 11
	RxBcastDropBytes   LIFStat = 12
	RxBcastDropPackets LIFStat = 13
	RxDMAError         LIFStat = 14
	TxUcastBytes       LIFStat = 16
	TxUcastPackets     LIFStat = 17
	TxMcastBytes       LIFStat = 18
	TxMcastPackets     LIFStat = 19
	TxBcastBytes       LIFStat = 20
	TxBcastPackets     LIFStat = 21
	TxUcastDropBytes   LIFStat = 24
	TxUcastDropPackets LIFStat = 25
	TxMcastDropBytes   LIFStat = 26
	TxMcastDropPackets LIFStat = 27
	TxBcastDropBytes   LIFStat = 28
	TxBcastDropPackets LIFStat = 29
	TxDMAError         LIFStat = 30
	RxQueueDisabled    LIFStat = 32
	RxQueueEmpty       LIFStat = 33
	RxQueueError       LIFStat = 34
	RxDescFetchError   LIFStat = 35
	RxDescDataError    LIFStat = 36
	TxQueueDisabled    LIFStat = 40
	TxQueueError       LIFStat = 41
	TxDescFetchError   LIFStat = 42
	TxDescDataError    LIFStat = 43
	TxQueueEmpty       LIFStat = 44

	// LIFStatEthEnd is one past the last counter of the Ethernet half; from
	// here on the block belongs to the RDMA half.
	LIFStatEthEnd LIFStat = 48
	// NumLIFStats is the number of quadwords in the block.
	NumLIFStats = LIFStatsSize / 8
)

// LIFStatNames holds the ionic_if.h name of each counter, "" for reserved words.
var LIFStatNames = [NumLIFStats]string{
	0: "rx_ucast_bytes", 1: "rx_ucast_packets", 2: "rx_mcast_bytes", 3: "rx_mcast_packets",
	4: "rx_bcast_bytes", 5: "rx_bcast_packets",
	8: "rx_ucast_drop_bytes", 9: "rx_ucast_drop_packets", 10: "rx_mcast_drop_bytes",
	11: "rx_mcast_drop_packets", 12: "rx_bcast_drop_bytes", 13: "rx_bcast_drop_packets",
	14: "rx_dma_error",
	16: "tx_ucast_bytes", 17: "tx_ucast_packets", 18: "tx_mcast_bytes", 19: "tx_mcast_packets",
	20: "tx_bcast_bytes", 21: "tx_bcast_packets",
	24: "tx_ucast_drop_bytes", 25: "tx_ucast_drop_packets", 26: "tx_mcast_drop_bytes",
	27: "tx_mcast_drop_packets", 28: "tx_bcast_drop_bytes", 29: "tx_bcast_drop_packets",
	30: "tx_dma_error",
	32: "rx_queue_disabled", 33: "rx_queue_empty", 34: "rx_queue_error",
	35: "rx_desc_fetch_error", 36: "rx_desc_data_error",
	40: "tx_queue_disabled", 41: "tx_queue_error", 42: "tx_desc_fetch_error",
	43: "tx_desc_data_error", 44: "tx_queue_empty",
	48: "tx_rdma_ucast_bytes", 49: "tx_rdma_ucast_packets", 50: "tx_rdma_mcast_bytes",
	51: "tx_rdma_mcast_packets", 52: "tx_rdma_cnp_packets",
	56: "rx_rdma_ucast_bytes", 57: "rx_rdma_ucast_packets", 58: "rx_rdma_mcast_bytes",
	59: "rx_rdma_mcast_packets", 60: "rx_rdma_cnp_packets", 61: "rx_rdma_ecn_packets",
	96: "rdma_req_rx_pkt_seq_err", 97: "rdma_req_rx_rnr_retry_err",
	98: "rdma_req_rx_remote_access_err", 99: "rdma_req_rx_remote_inv_req_err",
	100: "rdma_req_rx_remote_oper_err", 101: "rdma_req_rx_implied_nak_seq_err",
	102: "rdma_req_rx_cqe_err", 103: "rdma_req_rx_cqe_flush_err",
	104: "rdma_req_rx_dup_responses", 105: "rdma_req_rx_invalid_packets",
	106: "rdma_req_tx_local_access_err", 107: "rdma_req_tx_local_oper_err",
	108: "rdma_req_tx_memory_mgmt_err",
	112: "rdma_resp_rx_dup_requests", 113: "rdma_resp_rx_out_of_buffer",
	114: "rdma_resp_rx_out_of_seq_pkts", 115: "rdma_resp_rx_cqe_err",
	116: "rdma_resp_rx_cqe_flush_err", 117: "rdma_resp_rx_local_len_err",
	118: "rdma_resp_rx_inv_request_err", 119: "rdma_resp_rx_local_qp_oper_err",
	120: "rdma_resp_rx_out_of_atomic_resource", 121: "rdma_resp_tx_pkt_seq_err",
	122: "rdma_resp_tx_remote_inv_req_err", 123: "rdma_resp_tx_remote_access_err",
	124: "rdma_resp_tx_remote_oper_err", 125: "rdma_resp_tx_rnr_retry_err",
}

// PortStat is the quadword number of a counter in struct ionic_port_stats.
type PortStat uint8

// Port counters this device moves. All others stay 0: only a real wire has bad
// FCS, jabber, fragments or pause frames.
const (
	FramesRxOK        PortStat = 0
	FramesRxAll       PortStat = 1
	FramesRxBadAll    PortStat = 3
	OctetsRxOK        PortStat = 4
	OctetsRxAll       PortStat = 5
	FramesRxUnicast   PortStat = 6
	FramesRxMulticast PortStat = 7
	FramesRxBroadcast PortStat = 8
	FramesRxBadLength PortStat = 10
	FramesRxOversized PortStat = 12
	FramesRxTooLong   PortStat = 17
	FramesRxVLANGood  PortStat = 18
	FramesRxDropped   PortStat = 19
	FramesRx64        PortStat = 21 // first of the ten receive size buckets and "other"
	FramesTxOK        PortStat = 32
	FramesTxAll       PortStat = 33
	FramesTxBad       PortStat = 34
	OctetsTxOK        PortStat = 35
	OctetsTxTotal     PortStat = 36
	FramesTxUnicast   PortStat = 37
	FramesTxMulticast PortStat = 38
	FramesTxBroadcast PortStat = 39
	FramesTxVLAN      PortStat = 42
	FramesTx64        PortStat = 44 // first of the ten transmit size buckets and "other"
	FramesTxPri0      PortStat = 55 // first of eight
	FramesRxPri0      PortStat = 63 // first of eight

	// NumPortStats is the number of counters in the block.
	NumPortStats = PortStatsSize / 8
)

// SizeBuckets is the number of frame size buckets of one direction.
const SizeBuckets = 11

// SizeBucket returns the bucket (0..10) of a frame of n bytes on the wire, FCS
// included: 64, 65-127, 128-255, 256-511, 512-1023, 1024-1518, 1519-2047,
// 2048-4095, 4096-8191, 8192-9215, 9216 and up.
func SizeBucket(n int) PortStat {
	switch {
	case n <= 64:
		return 0
	case n <= 127:
		return 1
	case n <= 255:
		return 2
	case n <= 511:
		return 3
	case n <= 1023:
		return 4
	case n <= 1518:
		return 5
	case n <= 2047:
		return 6
	case n <= 4095:
		return 7
	case n <= 8191:
		return 8
	case n <= 9215:
		return 9
	}
	return 10
}

// PortStatNames holds the name of each port counter in block order, which is
// also the order of ethtool -S.
var PortStatNames = [NumPortStats]string{
	"frames_rx_ok", "frames_rx_all", "frames_rx_bad_fcs", "frames_rx_bad_all",
	"octets_rx_ok", "octets_rx_all", "frames_rx_unicast", "frames_rx_multicast",
	"frames_rx_broadcast", "frames_rx_pause", "frames_rx_bad_length", "frames_rx_undersized",
	"frames_rx_oversized", "frames_rx_fragments", "frames_rx_jabber", "frames_rx_pripause",
	"frames_rx_stomped_crc", "frames_rx_too_long", "frames_rx_vlan_good", "frames_rx_dropped",
	"frames_rx_less_than_64b", "frames_rx_64b", "frames_rx_65b_127b", "frames_rx_128b_255b",
	"frames_rx_256b_511b", "frames_rx_512b_1023b", "frames_rx_1024b_1518b", "frames_rx_1519b_2047b",
	"frames_rx_2048b_4095b", "frames_rx_4096b_8191b", "frames_rx_8192b_9215b", "frames_rx_other",
	"frames_tx_ok", "frames_tx_all", "frames_tx_bad", "octets_tx_ok", "octets_tx_total",
	"frames_tx_unicast", "frames_tx_multicast", "frames_tx_broadcast", "frames_tx_pause",
	"frames_tx_pripause", "frames_tx_vlan", "frames_tx_less_than_64b", "frames_tx_64b",
	"frames_tx_65b_127b", "frames_tx_128b_255b", "frames_tx_256b_511b", "frames_tx_512b_1023b",
	"frames_tx_1024b_1518b", "frames_tx_1519b_2047b", "frames_tx_2048b_4095b",
	"frames_tx_4096b_8191b", "frames_tx_8192b_9215b", "frames_tx_other",
	"frames_tx_pri_0", "frames_tx_pri_1", "frames_tx_pri_2", "frames_tx_pri_3",
	"frames_tx_pri_4", "frames_tx_pri_5", "frames_tx_pri_6", "frames_tx_pri_7",
	"frames_rx_pri_0", "frames_rx_pri_1", "frames_rx_pri_2", "frames_rx_pri_3",
	"frames_rx_pri_4", "frames_rx_pri_5", "frames_rx_pri_6", "frames_rx_pri_7",
	"tx_pripause_0_1us_count", "tx_pripause_1_1us_count", "tx_pripause_2_1us_count",
	"tx_pripause_3_1us_count", "tx_pripause_4_1us_count", "tx_pripause_5_1us_count",
	"tx_pripause_6_1us_count", "tx_pripause_7_1us_count",
	"rx_pripause_0_1us_count", "rx_pripause_1_1us_count", "rx_pripause_2_1us_count",
	"rx_pripause_3_1us_count", "rx_pripause_4_1us_count", "rx_pripause_5_1us_count",
	"rx_pripause_6_1us_count", "rx_pripause_7_1us_count",
	"rx_pause_1us_count", "frames_tx_truncated",
}
