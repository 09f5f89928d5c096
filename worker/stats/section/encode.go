// SPDX-License-Identifier: Apache-2.0

package section

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Format is a form of a snapshot.
type Format string

// Forms.
const (
	Text Format = "text"
	JSON Format = "json"
)

// ParseFormat finds the form of a name.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case Text, JSON:
		return f, nil
	}
	return "", fmt.Errorf("%q is none of text, json", s)
}

// Encode appends sections in the form f to b.
func Encode(b []byte, f Format, sections []Section) []byte {
	if f == JSON {
		return appendJSON(b, sections)
	}
	return appendText(b, sections)
}

func appendText(b []byte, sections []Section) []byte {
	for i := range sections {
		s := &sections[i]
		if i > 0 {
			b = append(b, '\n')
		}
		b = append(b, s.Title...)
		b = append(b, '\n')
		b = append(b, strings.Repeat("-", len(s.Title))...)
		b = append(b, '\n')
		for k := range s.Fields {
			b = appendLine(b, "", &s.Fields[k])
		}
		for _, r := range s.Rows {
			prefix := s.RowsKey + "." + strconv.FormatUint(uint64(r.ID), 10) + "."
			for k := range r.Fields {
				b = appendLine(b, prefix, &r.Fields[k])
			}
		}
	}
	return b
}

func appendLine(b []byte, prefix string, f *Field) []byte {
	b = append(b, prefix...)
	b = append(b, f.Name...)
	b = append(b, " : "...)
	if !f.IsText {
		b = strconv.AppendUint(b, f.Number, 10)
	} else if f.Text == "" {
		b = append(b, '-')
	} else {
		// A line break in a text, of an error for example, must not look like
		// another field.
		b = append(b, strings.Join(strings.FieldsFunc(f.Text, control), " ")...)
	}
	return append(b, '\n')
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

func appendJSON(b []byte, sections []Section) []byte {
	b = append(b, '{')
	for i := range sections {
		s := &sections[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n  "...)
		b = appendString(b, s.Key)
		b = append(b, ": {"...)
		b = appendFields(b, s.Fields, "\n    ")
		if s.RowsKey != "" {
			if len(s.Fields) > 0 {
				b = append(b, ',')
			}
			b = append(b, "\n    "...)
			b = appendString(b, s.RowsKey)
			b = append(b, ": {"...)
			for k, r := range s.Rows {
				if k > 0 {
					b = append(b, ',')
				}
				b = append(b, "\n      "...)
				b = appendString(b, strconv.FormatUint(uint64(r.ID), 10))
				b = append(b, ": {"...)
				b = appendFields(b, r.Fields, "\n        ")
				b = append(b, '}')
			}
			b = append(b, '}')
		}
		b = append(b, '}')
	}
	return append(b, "\n}\n"...)
}

func appendFields(b []byte, fields []Field, indent string) []byte {
	for i := range fields {
		f := &fields[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, indent...)
		b = appendString(b, f.Name)
		b = append(b, ": "...)
		if !f.IsText {
			b = strconv.AppendUint(b, f.Number, 10)
		} else {
			b = appendString(b, f.Text)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	q, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return append(b, q...)
}
