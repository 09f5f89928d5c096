// SPDX-License-Identifier: Apache-2.0

// Package wire is the byte format of fabric.v1 Exchange streams: what two
// workers say to each other on one connection. Integers are big-endian.
//
// The first message of each direction is a Hello:
//
//	 0               1               2               3
//	 +---------------+---------------+---------------+---------------+
//	0| magic "ERNH"                                                  |
//	4| format = 1    | purpose       | lane          | lanes         |
//	8| lowest protocol version       | highest protocol version      |
//	12| node id of the speaker                                       |
//	16| instance UUID of the speaker (16 bytes)                      |
//	32| incarnation of the speaker (64 bits)                         |
//	40| epoch of the link, chosen by the dialer (64 bits)            |
//	48| node id the speaker believes to speak to                     |
//	52| reserved (12 bytes, sent as 0, not looked at)                |
//	64+--- bytes behind this are ignored: room for later fields ---- +
//
// Every later message is a batch of frames. All frame headers stand in front,
// all large payloads behind, so that a batch is one small slice of headers
// followed by the senders' own payload slices, and so that a payload is
// contiguous at the receiver too:
//
//	 0               1               2               3
//	 +---------------+---------------+---------------+---------------+
//	0| magic "ERNF"                                                  |
//	4| version       | reserved = 0  | frames in this batch (1..256) |
//	8| head: offset of the payload area                              |
//	12| length: where the payload area ends                          |
//	16+--------------------------------------------------------------+
//	  | frame header [header bytes] [payload, if inline]             |
//	  | frame header [header bytes] [payload, if inline]  ...        |
//	  +-------------------------------------------------- head ----- +
//	  | payload of the first frame that is not inline                |
//	  | payload of the second ...                                    |
//	  +------------------------------------------------ length ----- +
//	  | padding, at most MaxPadding bytes, ignored                   |
//	  +--------------------------------------------------------------+
//
// A frame header:
//
//	 0               1               2               3
//	 +---------------+---------------+---------------+---------------+
//	0| type          | class         | flags         | reserved = 0  |
//	4| header length                 | reserved = 0                  |
//	8| payload length                                                |
//	12| source node                                                  |
//	16| destination node                                             |
//	20| flow                                                         |
//	24| sequence number in this direction of this connection (64)    |
//	32+--------------------------------------------------------------+
//
// Types: 0 data, 1 ping, 2 pong (the answer to a ping, with its token), 3 bye
// (the last frame of a connection closed in good order). All but data carry an
// 8-byte token inline. Flags: bit 0, the payload is inline. Sequence numbers start at 0 and count every frame, so that a
// receiver notices a gap.
package wire
