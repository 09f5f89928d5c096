// SPDX-License-Identifier: Apache-2.0

package section

import (
	"strings"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// ToProto returns sections as a worker sends them.
func ToProto(sections []Section) []*ernicv1.StatsSection {
	out := make([]*ernicv1.StatsSection, len(sections))
	for i := range sections {
		s := &sections[i]
		m := &ernicv1.StatsSection{Title: s.Title, Key: s.Key, RowsKey: s.RowsKey, Fields: fieldsToProto(s.Fields)}
		for _, r := range s.Rows {
			m.Rows = append(m.Rows, &ernicv1.StatsRow{Id: r.ID, Fields: fieldsToProto(r.Fields)})
		}
		out[i] = m
	}
	return out
}

func fieldsToProto(fields []Field) []*ernicv1.StatsField {
	out := make([]*ernicv1.StatsField, len(fields))
	for i, f := range fields {
		m := &ernicv1.StatsField{Name: f.Name}
		if f.IsText {
			m.Value = &ernicv1.StatsField_Text{Text: strings.ToValidUTF8(f.Text, "?")}
		} else {
			m.Value = &ernicv1.StatsField_Number{Number: f.Number}
		}
		out[i] = m
	}
	return out
}

// FromProto returns the sections that a worker has sent.
func FromProto(list []*ernicv1.StatsSection) []Section {
	out := make([]Section, len(list))
	for i, m := range list {
		s := Section{Title: m.GetTitle(), Key: m.GetKey(), RowsKey: m.GetRowsKey(), Fields: fieldsFromProto(m.GetFields())}
		for _, r := range m.GetRows() {
			s.Rows = append(s.Rows, Row{ID: r.GetId(), Fields: fieldsFromProto(r.GetFields())})
		}
		out[i] = s
	}
	return out
}

func fieldsFromProto(list []*ernicv1.StatsField) []Field {
	out := make([]Field, len(list))
	for i, m := range list {
		f := Field{Name: m.GetName(), Number: m.GetNumber(), Text: m.GetText()}
		_, f.IsText = m.GetValue().(*ernicv1.StatsField_Text)
		out[i] = f
	}
	return out
}
