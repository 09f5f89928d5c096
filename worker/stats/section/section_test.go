// SPDX-License-Identifier: Apache-2.0

package section

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

func TestParseFormat_RefusesOthers(t *testing.T) {
	for _, s := range []string{"text", "json"} {
		if f, err := ParseFormat(s); err != nil || string(f) != s {
			t.Errorf("%s: %v, %v", s, f, err)
		}
	}
	if _, err := ParseFormat("xml"); err == nil || !strings.Contains(err.Error(), `"xml"`) {
		t.Errorf("xml: %v", err)
	}
}

func TestEncode_FormsAreWhatReadersExpect(t *testing.T) {
	sections := []Section{
		{Title: "First One", Key: "first", Fields: []Field{Number("n", uint64(18446744073709551615)), TextField("empty", ""), YesNo("y", true)}},
		{Title: "Rows", Key: "rows", RowsKey: "peer", Rows: []Row{
			{7, []Field{TextField("error", "a\n\"b\" : c")}}, {8, []Field{Number("n", uint64(0))}},
		}},
	}
	const text = `First One
---------
n : 18446744073709551615
empty : -
y : yes

Rows
----
peer.7.error : a "b" : c
peer.8.n : 0
`
	if got := string(Encode(nil, Text, sections)); got != text {
		t.Errorf("text\n%s\nwant\n%s", got, text)
	}
	const js = `{"first":{"n":18446744073709551615,"empty":"","y":"yes"},"rows":{"peer":{"7":{"error":"a\n\"b\" : c"},"8":{"n":0}}}}`
	var b strings.Builder
	var raw json.RawMessage = Encode(nil, JSON, sections)
	e := json.NewEncoder(&b)
	if err := e.Encode(raw); err != nil {
		t.Fatal(err)
	}
	if b.String() != js+"\n" {
		t.Errorf("JSON\n%s\nwant\n%s", b.String(), js)
	}
}

func TestProto_BringsBackWhatWasSent(t *testing.T) {
	sections := []Section{
		{Title: "First One", Key: "first", Fields: []Field{Number("zero", uint64(0)), Number("n", ^uint64(0)), TextField("empty", "")}},
		{Title: "Rows", Key: "rows", RowsKey: "qp", Fields: []Field{}, Rows: []Row{{^uint32(0), []Field{TextField("t", "x")}}}},
	}
	b, err := proto.Marshal(&ernicv1.GetStatsResponse{Sections: ToProto(sections)})
	if err != nil {
		t.Fatal(err)
	}
	var m ernicv1.GetStatsResponse
	if err := proto.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if got := FromProto(m.GetSections()); !reflect.DeepEqual(got, sections) {
		t.Errorf("%+v\ncame as\n%+v", sections, got)
	}
	if _, err := proto.Marshal(&ernicv1.GetStatsResponse{Sections: ToProto([]Section{{Fields: []Field{TextField("e", "\xff")}}})}); err != nil {
		t.Errorf("a text that is no UTF-8: %v", err)
	}
}

// Whatever a peer or a guest puts into a name or an error: the text has a line
// per field, and the JSON form is JSON.
func FuzzEncode(f *testing.F) {
	f.Add("name", "value", uint64(1))
	f.Add("\x00", "a\nname : b\r\n", uint64(0))
	f.Add("ü", "\xff\xfe\u2028", uint64(1<<63))
	f.Fuzz(func(t *testing.T, row, value string, n uint64) {
		s := []Section{{
			Title: "T", Key: row, RowsKey: "r", Fields: []Field{TextField("a", value), Number("n", n)},
			Rows: []Row{{uint32(n), []Field{TextField("b", value)}}},
		}}
		if b := Encode(nil, JSON, s); !json.Valid(b) {
			t.Errorf("no JSON: %q", b)
		}
		if b := Encode(nil, Text, s); strings.Count(string(b), "\n") != 5 {
			t.Errorf("not five lines: %q", b)
		}
	})
}
