// SPDX-License-Identifier: Apache-2.0

// Package section is the form in which statistics are printed: sections of
// fields, as text or as JSON.
//
//	Per-QP Statistics                    {"per_qp": {
//	-----------------                      "alive": 1,
//	alive : 1                              "qp": {"2": {
//	qp.2.type : RC                           "type": "RC"}}}}
//
// The name of a line of text is the path of the value in the JSON form.
package section

// Section is a group of fields under a title.
type Section struct {
	Title  string // of the text form
	Key    string // of the JSON form
	Fields []Field
	// Rows are things of one kind that have fields of their own, under the name
	// RowsKey and their number.
	RowsKey string
	Rows    []Row
}

// Row is one of several things in a section.
type Row struct {
	ID     uint32
	Fields []Field
}

// Field is a name with a text or a number.
type Field struct {
	Name   string
	IsText bool
	Text   string
	Number uint64
}

// TextField is a field with a text.
func TextField(name, s string) Field { return Field{Name: name, IsText: true, Text: s} }

// Number is a field with a number.
func Number[T int | uint32 | uint64](name string, v T) Field {
	return Field{Name: name, Number: uint64(v)}
}

// YesNo is a field with the text yes or no.
func YesNo(name string, v bool) Field {
	if v {
		return TextField(name, "yes")
	}
	return TextField(name, "no")
}
