// SPDX-License-Identifier: Apache-2.0

package packet

// Sizes of the wire format, in bytes.
const (
	HeaderLen         = 96
	DatagramHeaderLen = 148
	MaxPayload        = 256 << 10 // one chunk
	PSNMask           = 1<<24 - 1
	QPNMask           = 1<<24 - 1
)

// Op names what a packet is. The list is append-only: it is a wire format.
type Op uint8

// Packet operations. Requests come first, answers from Ack on.
const (
	Send Op = iota
	SendImm
	SendInv
	Write
	WriteImm
	ReadRequest
	CompareSwap
	FetchAdd
	Ack          // positive or negative: Syndrome says which
	ReadResponse // carries data; its PSNs are those of the request
	AtomicAck    // carries the original value
	Datagram     // UD or GSI
	DatagramImm
	numOps
)

// Flags of a packet.
type Flags uint8

// Flag bits.
const (
	First      Flags = 1 << iota // first packet of its message
	Last                         // last packet of its message
	Solicited                    // solicited event wanted at the receiver
	AckRequest                   // sender wants an acknowledgement now
	Unreliable                   // UC: never answered
	knownFlags = First | Last | Solicited | AckRequest | Unreliable
)

// Syndrome is the answer code of Ack, ReadResponse and AtomicAck packets.
// The low five bits of an RNR NAK hold the responder's min_rnr_timer.
type Syndrome uint8

// Syndromes, after the AETH encoding of the InfiniBand specification.
const (
	Positive           Syndrome = 0x00
	RNR                Syndrome = 0x20 // | timer
	NakSequence        Syndrome = 0x60
	NakInvalidRequest  Syndrome = 0x61
	NakRemoteAccess    Syndrome = 0x62
	NakRemoteOperation Syndrome = 0x63
)

// Path bits of a datagram.
type Path uint8

// Path bits: the family of the 40 bytes and whether the frame had a VLAN tag.
const (
	PathIPv4 Path = 1 << iota
	PathVLAN
	knownPath = PathIPv4 | PathVLAN
)

// Header is the decoded transport header. Fields that an operation does not
// use are zero.
type Header struct {
	Op       Op
	Flags    Flags
	Syndrome Syndrome
	DstQPN   uint32
	SrcQPN   uint32
	PSN      uint32
	Count    uint32
	MSN      uint32
	VA       uint64
	RKey     uint32
	Length   uint32
	Imm      [4]byte
	QKey     uint32
	Operand  uint64 // swap, add, original value, or whole READ length
	Compare  uint64
	SrcGID   [16]byte
	DstGID   [16]byte

	// Datagrams only.
	SrcMAC [6]byte
	VLAN   uint16
	GRH    [40]byte
	Path   Path
}

// Releaser gets the payload memory of a received packet back.
type Releaser interface{ Release() }

// Packet is a header with its payload. It has one owner at a time; the owner
// either hands it on or calls Release. Get and Release make packets free of
// allocation in the steady state.
type Packet struct {
	Header
	Payload []byte

	wire  [DatagramHeaderLen]byte // scratch for the encoded header
	owner Releaser                // of Payload, when it came from outside
	tally *Tally                  // counts the packet until it is released
	class int8                    // size class of the pooled payload, -1 none
	next  *Packet                 // intrusive list of Queue
}
