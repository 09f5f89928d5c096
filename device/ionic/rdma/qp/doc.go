// SPDX-License-Identifier: Apache-2.0

// Package qp is the transport core of a queue pair: RC, UC, UD and GSI with
// InfiniBand semantics. It is pure. Rings, keys, completion queues, the link
// and the clock belong to an Env and to the caller of Step, so that text
// scripts and random models can drive it and one engine serves the loopback
// and the mesh alike.
//
// # Calls
//
//	doorbell, timer, room in the link, Modify --> Step --> Env: WQEs, memory,
//	packet from a peer --> Deliver --> inbox ---^            CQEs, packets
//
// A QP is an actor. Deliver only queues, from any goroutine; all else happens
// under one lock in Step, Modify, Query and Close. A Step does a bounded share
// of work and never waits. Requests and responses wait in separate inboxes,
// and either half of a QP can be held up by a full link or by an RNR wait
// while the other goes on.
//
// # States (MODIFY_QP)
//
//	RESET --INIT--> INIT --RTR--> RTR --RTS--> RTS <--SQD, RTS--> SQD
//	                                           | ^
//	      fault of own send work (UC and UD)   v | RTS
//	                                           SQE
//
//	any state --RESET--> RESET        any state --ERR--> ERR
//	RTS, SQD (RC): fault of own send work, or retries used up --> ERR
//	RTR, RTS, SQD, SQE: request refused (RC), or unusable receive --> ERR
//	INIT --INIT--> INIT, RTS --RTS--> RTS, SQD --SQD--> SQD change attributes
//
//	state  responder                   requester
//	RESET  drops                       nothing; PSN, MSN and work are zero
//	INIT   drops                       nothing
//	RTR    executes; the first packet  nothing
//	       raises COMM_EST
//	RTS    executes                    fetches and sends
//	SQD    executes                    finishes what it has fetched, then
//	                                   raises SQ_DRAINED if asked to
//	SQE    executes                    nothing; the send queue is flushed
//	ERR    drops                       nothing; both queues are flushed
//
// Entering ERR writes one flush completion per queue, after the completion
// that caused it. Only more of the same follow them, for what the guest posts
// to a queue that is flushed.
//
// # Events
//
//	COMM_EST    the first request has reached a QP in RTR (RC, UC)
//	SQ_DRAINED  SQD was asked to tell, and nothing begun is left
//	REQ_ERR     a request was refused because it is malformed (RC responder)
//	ACCESS_ERR  a request was refused by key, range or right (RC responder)
//	QP_FATAL    no completion can tell: a receive queue entry that guest memory
//	            does not hold any more, or a completion that did not reach the
//	            guest (Fail)
//
// The requester's own faults are told by completions. LAST_WQE_REACHED belongs
// to shared receive queues, which the driver does not have; port events come
// from the guest's own network interface.
//
// # Requester (RC)
//
// A message is cut into chunks of at most packet.MaxPayload bytes; READs are
// asked for in pieces. PSNs count path MTUs and are 64 bits wide inside.
//
//	PSN ------|-----------------------|---------------------|------>
//	          unacked                 next                  high
//	          oldest not              next to               highest ever
//	          acknowledged            send                  sent
//
//	           work, and the window is open: send, next += count
//	          +-----+
//	          |     v   ack or data: unacked moves, messages complete
//	        +---------+ <-----------------------------------------+
//	  +---> | SENDING |                                           |
//	  |     +---------+ --- NAK sequence, or an answer that ----> next = unacked,
//	  |       |    |        skips a READ (implied NAK)            retries += 1
//	  |       |    |
//	  |       |    +--- timer ---> PROBING: next = unacked, retries += 1, one
//	  |       |                    packet at a time until something moves
//	  |  RNR NAK: next = unacked, rnr retries += 1
//	  |       v
//	  |     +----------+   retries > retry_cnt, and silence:   RETRY_EXCEEDED
//	  +---- | RNR WAIT |   rnr retries > rnr_retry (7: never): RNR_RETRY_EXCEEDED
//	 timer  +----------+   both go back to 0 when unacked moves
//
// Timeouts use up retries, but a peer that says nothing is waited for longer:
// four times (retry_cnt+1) times the timeout, up to 2 s (silence).
//
// The window is 2 MiB, less when many QPs of a device are busy (Share): what
// only waits in queues would outlast the timers. A timer that fires late is let
// pass a few times in a try: this process had no CPU. So is, for 2 s without
// progress, one that fires while the link sends but has not come to what it
// holds of this QP (Config.Pending): nobody has seen our packets yet.
//
// A rate limit (RC) spaces the packets of the send queue. Each then asks for an
// acknowledgement, because the timer must not run out between two of them.
//
// Completions are strictly in order of the ring. A message that cannot be sent
// (a bad key, a malformed WQE) fails only when all before it have succeeded.
// Local operations run when their turn to be sent has come; LOCAL_INV waits
// for all earlier work, because a retransmission may need the key.
//
// UC is the same machine in which every packet is acknowledged by the link
// that takes it; UD has no PSN window and addresses every message by itself.
//
// # Responder (RC)
//
//	PSN == expected            check, place, expected += count, MSN
//	PSN >  expected            one NAK sequence, then silence until expected comes
//	PSN <  expected            repeated: SEND and WRITE are acknowledged again and
//	                           not placed again, a READ is executed again, an
//	                           atomic is answered from its record
//	no receive                 RNR NAK, then silence until expected comes again
//	access, length, malformed  receive CQE if one was consumed, NAK, ERR
//
//	            request                      answer gone
//	  +-----------+ -- READ, atomic, NAK --> +-----------+
//	  | EXPECTING |                          | ANSWERING |  requests wait while
//	  +-----------+ <----------------------- +-----------+  the link is full
//
// One acknowledgement at the end of a Step covers all that the Step executed.
package qp
