// SPDX-License-Identifier: Apache-2.0

// Package stats shows everything a worker counts. There is one source, Take,
// and several forms of what it returns, so that they cannot disagree:
//
//	Source --Take--> Snapshot --Sections--> text    (stats file, ernictl stats)
//	                    |          `------> JSON    (stats file, ernictl stats)
//	                    `-----------------> metrics (Collector, /metrics)
//
// The text form has a title per section and one line per field. The JSON form is
// an object per section; the name of a line is the path in the JSON form:
//
//	LIF Statistics                      {"lif": {
//	--------------                         "rx_ucast_bytes": 98,
//	rx_ucast_bytes : 98                    ...
//
//	Per-QP Statistics                    "per_qp": {
//	-----------------                      "alive": 1,
//	alive : 1                              "qp": {"2": {"type": "RC", ...
//	qp.2.type : RC
//
// Nothing here runs on the data path: a snapshot reads counters that are kept
// anyway, when somebody asks.
package stats
