// SPDX-License-Identifier: Apache-2.0

// Package packet is the unit two RDMA engines exchange: a fixed binary transport
// header and at most MaxPayload bytes of payload.
//
// A packet plays the role an InfiniBand packet plays on a wire, except that it
// may stand for several consecutive PSNs: a chunk of a message that would be
// cut into k path-MTU packets travels as one packet with PSN p and Count k,
// and both ends advance their PSN by k. Acknowledgements, NAKs, duplicate
// detection and go-back-N therefore follow the InfiniBand rules unchanged.
//
//	 0               8               16              24              32
//	 +---------------+---------------+---------------+---------------+
//	0| op            | flags         | syndrome      | header length |
//	 +---------------+---------------+---------------+---------------+
//	4| destination QPN (24 bits)                                     |
//	8| source QPN (24 bits)                                          |
//	12| PSN (24 bits)                                                |
//	16| Count: PSNs this packet stands for, >= 1                     |
//	20| MSN (acknowledgements), 24 bits                              |
//	24| remote VA (64 bits)                                          |
//	32| rkey                                                         |
//	36| length: whole message (first packet), or bytes asked (READ)  |
//	40| immediate, or rkey to invalidate (bytes as posted)           |
//	44| Q_Key (datagrams)                                            |
//	48| swap or add (atomic request), original value (atomic answer),|
//	  | bytes of the whole message (first READ request of it)        |
//	56| compare                                                      |
//	64| source GID (16 bytes)                                        |
//	80| destination GID (16 bytes)                                   |
//	96+--- datagrams only (header length 148) ---------------------- +
//	96| source MAC (6 bytes)          | VLAN TCI (16 bits)           |
//	104| the 40 bytes in front of the payload (GRH or IPv4)          |
//	144| path: bit 0 IPv4, bit 1 VLAN tag present; 3 bytes zero      |
//	148+-------------------------------------------------------------+
//
// A READ message is asked for in pieces, one READ_REQUEST each, so that the
// answers under way stay within the requester's window. The first piece tells
// the size of the whole, which the responder checks before it answers, and
// the last piece has the last flag.
//
// All integers are big-endian, as on an RDMA wire. The header comes from a
// peer and is untrusted: Decode checks every field that has a fixed range.
package packet
