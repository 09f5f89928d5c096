// SPDX-License-Identifier: Apache-2.0

// Package stats shows everything a worker counts. There is one source, Take,
// and several forms of what it returns, so that they cannot disagree:
//
//	Source --Take--> Snapshot --Sections--> text    (stats file, ernictl stats)
//	                    |          `------> JSON    (stats file, ernictl stats)
//	                    `-----------------> metrics (Collector, /metrics)
//
// The forms are those of package section.
//
// Nothing here runs on the data path: a snapshot reads counters that are kept
// anyway, when somebody asks.
package stats
