// SPDX-License-Identifier: Apache-2.0

package image

import (
	"regexp"
	"strconv"
	"strings"
)

// numbers is the sequence of decimal numbers in s. Numbers too long for an int
// count as the largest one.
func numbers(s string) []int {
	var out []int
	for _, d := range strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		n, err := strconv.Atoi(d)
		if err != nil {
			n = int(^uint(0) >> 1)
		}
		out = append(out, n)
	}
	return out
}

// compareVersions orders versions by their numbers: "7.10" is above "7.9", and
// "7.2" equals "7.2.0".
func compareVersions(a, b string) int {
	x, y := numbers(a), numbers(b)
	for i := range max(len(x), len(y)) {
		var m, n int
		if i < len(x) {
			m = x[i]
		}
		if i < len(y) {
			n = y[i]
		}
		if m != n {
			if m < n {
				return -1
			}
			return 1
		}
	}
	return 0
}

// newestMatch returns what the first group of pattern captured in the newest
// matching name, and that name.
func newestMatch(pattern *regexp.Regexp, names []string) (name, version string, ok bool) {
	for _, n := range names {
		m := pattern.FindStringSubmatch(n)
		if m != nil && (!ok || compareVersions(m[1], version) > 0) {
			name, version, ok = n, m[1], true
		}
	}
	return name, version, ok
}

// majorMinor is the first two numbers of a version, as Debian names its kernel
// source packages.
func majorMinor(version string) string {
	n := numbers(version)
	if len(n) < 2 {
		return version
	}
	return strconv.Itoa(n[0]) + "." + strconv.Itoa(n[1])
}
