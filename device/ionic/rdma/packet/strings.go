// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"strings"
)

var opNames = [numOps]string{
	Send: "SEND", SendImm: "SEND_IMM", SendInv: "SEND_INV",
	Write: "WRITE", WriteImm: "WRITE_IMM", ReadRequest: "READ_REQUEST",
	CompareSwap: "CMP_SWP", FetchAdd: "FETCH_ADD",
	Ack: "ACK", ReadResponse: "READ_RESPONSE", AtomicAck: "ATOMIC_ACK",
	Datagram: "DATAGRAM", DatagramImm: "DATAGRAM_IMM",
}

// String names the operation.
func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// String lists the set flags, "-" when there are none.
func (f Flags) String() string {
	return bits(uint8(f), "first", "last", "solicited", "ackreq", "unreliable")
}

// String lists the set bits, "-" when there are none.
func (p Path) String() string { return bits(uint8(p), "ipv4", "vlan") }

// Timer is the min_rnr_timer code of an RNR NAK.
func (s Syndrome) Timer() uint8 { return uint8(s) & 0x1f }

// IsRNR reports whether the syndrome is an RNR NAK.
func (s Syndrome) IsRNR() bool { return s&^0x1f == RNR }

// IsPositive reports whether the syndrome acknowledges.
func (s Syndrome) IsPositive() bool { return s&^0x1f == Positive }

// String names the syndrome.
func (s Syndrome) String() string {
	switch {
	case s.IsPositive():
		return "ack"
	case s.IsRNR():
		return fmt.Sprintf("rnr(%d)", s.Timer())
	case s == NakSequence:
		return "nak-sequence"
	case s == NakInvalidRequest:
		return "nak-invalid-request"
	case s == NakRemoteAccess:
		return "nak-remote-access"
	case s == NakRemoteOperation:
		return "nak-remote-operation"
	}
	return fmt.Sprintf("syndrome(%#x)", uint8(s))
}

func bits(v uint8, names ...string) string {
	if v == 0 {
		return "-"
	}
	var set []string
	for i := range 8 {
		switch {
		case v&(1<<i) == 0:
		case i < len(names):
			set = append(set, names[i])
		default:
			set = append(set, fmt.Sprintf("bit%d", i))
		}
	}
	return strings.Join(set, "|")
}
