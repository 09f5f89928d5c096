// SPDX-License-Identifier: Apache-2.0

// Package core decides who is who in a mesh and who owns which address. It is a state machine without a clock, a
// goroutine or a file: events go in together with the time at which they happened, effects come out, and what has to
// survive a restart is handed over as changes to records. The shell around it (package manager) owns all of that.
//
// A node:
//
//	           Register                       session ends, or is quiet
//	(no node) ----------> alive ------------------------------------------> suspect
//	    ^                  ^  ^ <-------------------------------------------   |
//	    |                  |        anything heard, or Register again          |
//	    | Leave,           |                                                   | nothing for three intervals,
//	    | claim TTL or     |  Register again                                   | probe without an answer,
//	    | quarantine over  +--------------------- dead <-----------------------+ or nothing left to probe
//	    |                                          |
//	    +------------------------------------------+     Evict, from any state: evicted, id in quarantine
//
// A claim counts while its node is alive or suspect. A GID resolves to the node whose claim counts if there is exactly
// one, and to none otherwise:
//
//	                    node dead
//	       active  ------------------> withdrawn      kept, does not count; gone for good when the node releases
//	        ^  |   <------------------    ^   |       it, leaves, is evicted or is forgotten
//	all     |  |       node back          |   |
//	others  |  | another counts           |   | node back, another counts
//	gone    |  v          node dead       |   v
//	       conflict ----------------------+---+
//
// Withdrawal and restoration are therefore nothing but a change of the node's state: no claim is rewritten, and none can
// be forgotten on the way.
package core
