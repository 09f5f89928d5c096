// SPDX-License-Identifier: Apache-2.0

package toolout

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseBandwidths reads the output of a perftest *_bw program, one entry for
// each message size it was run with.
func ParseBandwidths(out string) ([]Bandwidth, error) {
	rows, err := resultTable(out, "BW average", 5)
	var l []Bandwidth
	for _, f := range rows {
		l = append(l, Bandwidth{int(f[0]), int(f[1]), f[2], f[3], f[4]})
	}
	return l, err
}

// ParseLatencies reads the output of a perftest *_lat program, one entry for
// each message size it was run with.
func ParseLatencies(out string) ([]Latency, error) {
	rows, err := resultTable(out, "t_typical", 6)
	var l []Latency
	for _, f := range rows {
		e := Latency{Bytes: int(f[0]), Iterations: int(f[1]), Min: f[2], Max: f[3], Typical: f[4], Average: f[5]}
		if len(f) > 7 {
			e.P99 = f[7]
		}
		l = append(l, e)
	}
	return l, err
}

// resultTable finds the lines of at least width numbers below the heading that
// contains title. A line of fewer numbers there is an error: perftest has been
// cut off.
func resultTable(out, title string, width int) ([][]float64, error) {
	_, below, found := strings.Cut(out, title)
	if !found {
		return nil, fmt.Errorf("perftest: no result under %q in:\n%s", title, out)
	}
	_, below, _ = strings.Cut(below, "\n")
	var rows [][]float64
	for line := range strings.Lines(below) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if _, err := strconv.ParseFloat(words[0], 64); err != nil {
			break // the rule below the table, or a remark
		}
		var f []float64
		for _, w := range words {
			// The deviation of few messages that differ much is "-nan".
			n, err := strconv.ParseFloat(strings.TrimPrefix(w, "-"), 64)
			if err != nil {
				return nil, fmt.Errorf("perftest: %q is no number in %q", w, line)
			}
			f = append(f, n)
		}
		if len(f) < width {
			return nil, fmt.Errorf("perftest: the result line has %d numbers, want %d: %q", len(f), width, line)
		}
		rows = append(rows, f)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("perftest: no line under %q in:\n%s", title, out)
	}
	return rows, nil
}
