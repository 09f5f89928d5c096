// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// formats of -o.
var formats = []string{"table", "wide", "json", "yaml"}

// format is the value of -o.
type format string

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }

func (f *format) Set(s string) error {
	for _, known := range formats {
		if s == known {
			*f = format(s)
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", s, strings.Join(formats, ", "))
}

// addOutput adds -o and --watch to a command.
func addOutput(c *cobra.Command, f *format, watch *bool) {
	*f = "table"
	c.Flags().VarP(f, "output", "o", "`format`: table, wide, json or yaml")
	if err := c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was added just now
	}
	if watch != nil {
		c.Flags().BoolVarP(watch, "watch", "w", false, "go on and show every change as it comes")
	}
}

var _ pflag.Value = (*format)(nil)

// column is one column of a table of T.
type column[T any] struct {
	title string
	wide  bool // shown with -o wide only
	cell  func(T) string
}

// printer shows items of type T.
type printer[T any] struct {
	out     io.Writer
	format  format
	columns []column[T]
	widths  []int
}

// change is an item in the output of --watch with -o json or yaml.
type change[T any] struct {
	// Change is "shown" for what there was at the beginning, "changed" or "removed".
	Change string `json:"change" yaml:"change"`
	Item   T      `json:"item" yaml:"item"`
}

// list shows all items at once.
func (p *printer[T]) list(items []T) error {
	switch p.format {
	case "json":
		if items == nil {
			items = []T{}
		}
		e := json.NewEncoder(p.out)
		e.SetIndent("", "  ")
		return e.Encode(items)
	case "yaml":
		return p.yaml(items)
	}
	return p.table(items)
}

func (p *printer[T]) yaml(v any) error {
	e := yaml.NewEncoder(p.out)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return err
	}
	return e.Close()
}

// changes shows items that came about, changed or went, one at a time.
func (p *printer[T]) changes(what string, items []T) error {
	switch p.format {
	case "json":
		e := json.NewEncoder(p.out)
		for _, item := range items {
			if err := e.Encode(change[T]{what, item}); err != nil {
				return err
			}
		}
		return nil
	case "yaml":
		for _, item := range items {
			if _, err := io.WriteString(p.out, "---\n"); err != nil {
				return err
			}
			if err := p.yaml(change[T]{what, item}); err != nil {
				return err
			}
		}
		return nil
	}
	return p.table(items)
}

// stream shows items of a sequence without an end, each for itself.
func (p *printer[T]) stream(items []T) error {
	switch p.format {
	case "json":
		e := json.NewEncoder(p.out)
		for _, item := range items {
			if err := e.Encode(item); err != nil {
				return err
			}
		}
		return nil
	case "yaml":
		for _, item := range items {
			if _, err := io.WriteString(p.out, "---\n"); err != nil {
				return err
			}
			if err := p.yaml(item); err != nil {
				return err
			}
		}
		return nil
	}
	return p.table(items)
}

// table writes rows, below a header the first time. Later rows keep to the columns of the first.
func (p *printer[T]) table(items []T) error {
	var columns []column[T]
	for _, c := range p.columns {
		if !c.wide || p.format == "wide" {
			columns = append(columns, c)
		}
	}
	rows := make([][]string, 0, len(items)+1)
	if p.widths == nil {
		p.widths = make([]int, len(columns))
		titles := make([]string, len(columns))
		for i, c := range columns {
			titles[i] = c.title
		}
		rows = append(rows, titles)
	}
	for _, item := range items {
		cells := make([]string, len(columns))
		for i, c := range columns {
			if cells[i] = c.cell(item); cells[i] == "" {
				cells[i] = "-"
			}
		}
		rows = append(rows, cells)
	}
	for _, row := range rows {
		for i, cell := range row {
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", p.widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}
