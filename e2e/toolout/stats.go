// SPDX-License-Identifier: Apache-2.0

package toolout

import (
	"fmt"
	"strconv"
	"strings"
)

// Stats is a stats file of a worker: a value by section and name.
type Stats map[string]map[string]string

// ParseStats takes the text form of a stats file apart. Sections have a title, a
// line below it and a line per field.
func ParseStats(text string) Stats {
	s := Stats{}
	title, before := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(line, " : "); ok {
			if s[title] != nil {
				s[title][name] = value
			}
		} else if line != "" && strings.Trim(line, "-") == "" {
			title = before
			s[title] = map[string]string{}
		}
		before = line
	}
	return s
}

// Number returns a counter.
func (s Stats) Number(section, name string) (uint64, error) {
	v, err := strconv.ParseUint(s[section][name], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stats file, section %s: %s is %q", section, name, s[section][name])
	}
	return v, nil
}
