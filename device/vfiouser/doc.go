// SPDX-License-Identifier: Apache-2.0

// Package vfiouser is a vfio-user server: it offers an emulated PCI device to
// a hypervisor over a UNIX stream socket. It knows messages, descriptors,
// guest memory windows and interrupts; what the device is stays behind the
// Device interface.
//
// # Wire format
//
// All integers are little-endian (host order of every supported host).
// Descriptors travel as SCM_RIGHTS with the first byte of their message.
//
//	 0       2       4               8              12              16
//	+-------+-------+---------------+---------------+---------------+----
//	|  id   |command| size, header  | flags         | errno         | payload
//	|       |       | included      | 0-3 type      | of an error   |
//	|       |       |               | 4   NO_REPLY  | reply, else 0 |
//	|       |       |               | 5   ERROR     |               |
//	+-------+-------+---------------+---------------+---------------+----
//	type 0 = command, 1 = reply; an error reply has no payload
//
// Payloads (offsets from the end of the header; fd = attached descriptor):
//
//	VERSION 1            u16 major, u16 minor, JSON with one NUL; both ways
//	DMA_MAP 2            u32 argsz, u32 flags, u64 file offset, u64 iova, u64 size; 0 or 1 fd
//	                     reply: none
//	DMA_UNMAP 3          u32 argsz, u32 flags, u64 iova, u64 size
//	                     reply: the same 24 bytes
//	GET_INFO 4           u32 argsz, u32 flags, u32 regions, u32 irqs; both ways
//	GET_REGION_INFO 5    u32 argsz, u32 flags, u32 index, u32 cap offset, u64 size, u64 offset; both ways
//	                     reply may add: u16 id = 1, u16 version = 1, u32 next = 0,
//	                     u32 areas, u32 0, {u64 offset, u64 size} * areas; 1 fd
//	GET_REGION_IO_FDS 6  u32 argsz, u32 flags, u32 index, u32 count; both ways
//	GET_IRQ_INFO 7       u32 argsz, u32 flags, u32 index, u32 count; both ways
//	SET_IRQS 8           u32 argsz, u32 flags, u32 index, u32 start, u32 count, count bool; 0 or count fds
//	                     reply: none
//	REGION_READ 9        u64 offset, u32 region, u32 count
//	                     reply: the same 16 bytes, count bytes
//	REGION_WRITE 10      u64 offset, u32 region, u32 count, count bytes
//	                     reply: the first 16 bytes
//	DMA_READ 11          server to client: u64 iova, u64 count
//	                     reply: the same 16 bytes, count bytes
//	DMA_WRITE 12         server to client: u64 iova, u64 count, count bytes
//	                     reply: the first 16 bytes
//	DEVICE_RESET 13      none; reply: none
//	REGION_WRITE_MULTI 15  u64 n, {u64 offset, u32 region, u32 count <= 8, 8 bytes} * n
//	                     reply: u64 n
//	DEVICE_FEATURE 16    u32 argsz, u32 flags, data; always refused with ENOTTY: no migration
//
// # Behaviour
//
// One goroutine per client reads, handles and answers its messages in order.
// While a client waits for an answer the whole guest may stand still, and
// hypervisors give up after five seconds: a Device must answer at once and
// hand slow work to goroutines of its own. A request with NO_REPLY is never
// answered, not even with an error.
//
// A client that vanishes loses its windows and interrupts; the device stays
// and waits for the next client. While one client is connected another one is
// refused with EBUSY.
//
// Only 16-byte error replies exist, and some clients do not understand them
// where a longer reply is due. The server therefore prefers harmless success
// where the protocol leaves a choice, and a Device should do the same: read
// holes as zero, drop writes to them.
package vfiouser
