// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"math/bits"

	"github.com/ernic-dev/ernic/fabric"
)

// set is a set of groups.
type set [fabric.Groups / 64]uint64

func (s *set) add(g uint8)      { s[g>>6] |= 1 << (g & 63) }
func (s *set) remove(g uint8)   { s[g>>6] &^= 1 << (g & 63) }
func (s *set) has(g uint8) bool { return s[g>>6]&(1<<(g&63)) != 0 }
func (s *set) empty() bool      { return s[0]|s[1]|s[2]|s[3] == 0 }

// after returns the first member behind g, wrapping around, and g itself last.
// The set must not be empty.
func (s *set) after(g uint8) uint8 {
	w := int(g >> 6)
	// Members of g's word behind g come first, those up to g last.
	behind := s[w] &^ (1<<(g&63)<<1 - 1)
	if behind != 0 {
		return uint8(w<<6 + bits.TrailingZeros64(behind))
	}
	for i := 1; i <= len(s); i++ {
		w := (w + i) % len(s)
		if s[w] != 0 {
			return uint8(w<<6 + bits.TrailingZeros64(s[w]))
		}
	}
	return g
}
