// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// column is what one fabric measured.
type column struct {
	Name    string  `json:"name"`
	Results results `json:"results"`
}

// printTable prints one line a test. The ratio says how many times better the
// first column is than the second: more for rates, less for times.
func printTable(out io.Writer, columns []column) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "TEST\tUNIT")
	for _, c := range columns {
		fmt.Fprintf(w, "\t%s", c.Name)
	}
	if len(columns) == 2 {
		fmt.Fprint(w, "\tTIMES BETTER")
	}
	fmt.Fprintln(w)
	for i, r := range columns[0].Results {
		fmt.Fprintf(w, "%s\t%s", r.Test, r.Unit)
		for _, c := range columns {
			fmt.Fprint(w, "\t", figure(c.Results[i].Median))
		}
		if len(columns) == 2 {
			fmt.Fprint(w, "\t", figure(advantage(r, columns[1].Results[i])))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// figure writes a number, or that there is none.
func figure(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", v)
}

// advantage is 0 when one of the two could not be measured.
func advantage(own, other result) float64 {
	switch {
	case own.Median == 0 || other.Median == 0:
		return 0
	case own.LessIsBetter:
		return other.Median / own.Median
	}
	return own.Median / other.Median
}
