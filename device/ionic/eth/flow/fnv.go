// SPDX-License-Identifier: Apache-2.0

package flow

// FNV-1a, 32 bits.
const (
	fnvOffset = 2166136261
	fnvPrime  = 16777619
)

// FNV returns the 32-bit FNV-1a hash of the flow of frame f: source and
// destination IP address, protocol and, for unfragmented TCP, UDP and SCTP, the
// two ports, all in network order; for other frames the two MAC addresses as
// they stand in the frame. f must be the frame i was parsed from.
func (i *Info) FNV(f []byte) uint32 {
	h := uint32(fnvOffset)
	if i.IP == 0 {
		return fnvAdd(h, f[:min(12, len(f))])
	}
	h = fnvAdd(h, i.Addresses(f))
	h = (h ^ uint32(i.Proto)) * fnvPrime
	if i.Ports {
		h = fnvAdd(h, f[i.L4:i.L4+4])
	}
	return h
}

func fnvAdd(h uint32, b []byte) uint32 {
	for _, c := range b {
		h = (h ^ uint32(c)) * fnvPrime
	}
	return h
}
