// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"hash/fnv"
	"io"
	"strings"
)

// Hash returns a 64-bit hash of the values: FNV-1a over "section.key=value\n" in
// the order of the printed profile. Two devices with the same hash have the same
// shape.
func (p *Profile) Hash() uint64 {
	h := fnv.New64a()
	for i := range keys {
		_, _ = fmt.Fprintf(h, "%v=%s\n", &keys[i], keys[i].get(p))
	}
	return h.Sum64()
}

// Chain returns the names of the layers, first to last, joined by " + ".
func (s *Set) Chain() string { return strings.Join(s.Layers, " + ") }

// Print writes the merged profile as an ini file that loads back to the same
// values. Its header names the layers and the hash.
func (s *Set) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# NIC profile\n# layers: %s\n# hash: %016x\n", s.Chain(), s.Hash())
	section := ""
	for i := range keys {
		k := &keys[i]
		if k.section != section {
			section = k.section
			fmt.Fprintf(&b, "\n[%s]\n", section)
		}
		fmt.Fprintf(&b, "%s = %s\n", k.name, k.get(&s.Profile))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
