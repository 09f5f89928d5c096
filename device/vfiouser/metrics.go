// SPDX-License-Identifier: Apache-2.0

package vfiouser

import "sync/atomic"

// counters are the running totals of a Server.
type counters struct {
	sessions        atomic.Uint64
	refusedBusy     atomic.Uint64
	refusedUID      atomic.Uint64
	handshakeErrors atomic.Uint64
	protocolErrors  atomic.Uint64 // messages after which the connection was dropped
	connectionLost  atomic.Uint64 // sessions ended by a socket error or a timeout
	acceptErrors    atomic.Uint64

	requests       [numCommands]atomic.Uint64
	unknown        atomic.Uint64
	posted         atomic.Uint64 // requests with NO_REPLY
	errorReplies   atomic.Uint64
	silentErrors   atomic.Uint64 // errors of requests with NO_REPLY
	strayReplies   atomic.Uint64
	unusedFDs      atomic.Uint64
	bytesRead      atomic.Uint64
	bytesWritten   atomic.Uint64
	unmapDrainFail atomic.Uint64

	irqsSignalled atomic.Uint64
	irqsDropped   atomic.Uint64
	irqsSaturated atomic.Uint64
	irqErrors     atomic.Uint64

	dmaMessages        atomic.Uint64
	dmaMessageErrors   atomic.Uint64
	dmaMessageTimeouts atomic.Uint64
}

// Metric is one named number. Names are stable.
type Metric struct {
	Name  string
	Value uint64
}

// Metrics returns a snapshot of all counters, those of the guest memory
// included, always in the same order.
func (s *Server) Metrics() []Metric {
	c := &s.counters
	ms := []Metric{
		{"sessions", c.sessions.Load()},
		{"clients_refused_busy", c.refusedBusy.Load()},
		{"clients_refused_uid", c.refusedUID.Load()},
		{"handshake_errors", c.handshakeErrors.Load()},
		{"protocol_errors", c.protocolErrors.Load()},
		{"connections_lost", c.connectionLost.Load()},
		{"accept_errors", c.acceptErrors.Load()},
		{"requests_unknown", c.unknown.Load()},
		{"requests_posted", c.posted.Load()},
		{"replies_error", c.errorReplies.Load()},
		{"errors_unreported", c.silentErrors.Load()},
		{"replies_stray", c.strayReplies.Load()},
		{"descriptors_unused", c.unusedFDs.Load()},
		{"region_bytes_read", c.bytesRead.Load()},
		{"region_bytes_written", c.bytesWritten.Load()},
		{"unmap_drain_timeouts", c.unmapDrainFail.Load()},
		{"irqs_signalled", c.irqsSignalled.Load()},
		{"irqs_unassigned", c.irqsDropped.Load()},
		{"irqs_saturated", c.irqsSaturated.Load()},
		{"irq_errors", c.irqErrors.Load()},
		{"dma_messages", c.dmaMessages.Load()},
		{"dma_message_errors", c.dmaMessageErrors.Load()},
		{"dma_message_timeouts", c.dmaMessageTimeouts.Load()},
	}
	for cmd, name := range requestMetricNames {
		if name != "" {
			ms = append(ms, Metric{name, c.requests[cmd].Load()})
		}
	}
	st := s.Mem().Stats()
	return append(ms,
		Metric{"memory_windows", uint64(st.Windows)},
		Metric{"memory_files", uint64(st.Files)},
		Metric{"memory_file_bytes", st.FileBytes},
		Metric{"memory_maps", st.Maps},
		Metric{"memory_unmaps", st.Unmaps},
		Metric{"memory_files_mapped", st.FilesMapped},
		Metric{"memory_accesses_denied", st.Denied},
		Metric{"memory_faults", st.Faults},
	)
}

// requestMetricNames names the counter of each request a client can send.
var requestMetricNames = [numCommands]string{
	CmdVersion:          "requests_version",
	CmdDMAMap:           "requests_dma_map",
	CmdDMAUnmap:         "requests_dma_unmap",
	CmdGetInfo:          "requests_get_info",
	CmdGetRegionInfo:    "requests_region_info",
	CmdGetRegionIOFDs:   "requests_region_io_fds",
	CmdGetIRQInfo:       "requests_irq_info",
	CmdSetIRQs:          "requests_set_irqs",
	CmdRegionRead:       "requests_region_read",
	CmdRegionWrite:      "requests_region_write",
	CmdReset:            "requests_reset",
	CmdRegionWriteMulti: "requests_region_write_multi",
	CmdFeature:          "requests_feature",
	CmdMigDataRead:      "requests_mig_data_read",
	CmdMigDataWrite:     "requests_mig_data_write",
}
