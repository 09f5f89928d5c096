// SPDX-License-Identifier: Apache-2.0

// Package vfioclient is a vfio-user client that behaves like the one in QEMU
// 11.1, down to the mistakes of a server that it does not forgive: a reply to a
// posted write, a reply longer or shorter than its command defines, a
// descriptor where none belongs, a capability out of QEMU's range, or a message
// header that arrives in pieces ends the session with an error that names it.
// It stands in for a virtual machine in tests, benchmarks and drivers in Go.
//
// # Messages
//
// All integers are little-endian. A message is a 16-byte header and a payload:
//
//	0      2      4          8          12         16
//	| id   | cmd  | size     | flags    | error    | payload ...
//
// size counts the header. flags: bits 0-3 type (0 command, 1 reply), bit 4 no
// reply wanted, bit 5 error, whose errno is then in the error field.
//
// # The guest
//
// The guest's memory is a sealed memfd ([RAM]) that the server maps too, laid
// out in windows of bus addresses. Interrupts are non-blocking eventfds
// ([Vector]). Memory that the server can reach only by messages is added with
// [Client.AddMessageMemory]. Requests may come from many goroutines, as they do
// from the virtual CPUs of QEMU; each waits for its own reply.
package vfioclient
