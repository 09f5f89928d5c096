// SPDX-License-Identifier: Apache-2.0

package gid

import (
	"strings"
	"testing"
)

func TestParseReadsBothFamiliesAndTheKernelsForm(t *testing.T) {
	for _, tc := range []struct{ in, want, v4 string }{
		{"fe80::5054:ff:fe12:3456", "fe80::5054:ff:fe12:3456", ""},
		{"fe80:0000:0000:0000:5054:00ff:fe12:3456", "fe80::5054:ff:fe12:3456", ""},
		{"10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1"},
		{"0000:0000:0000:0000:0000:ffff:0a00:0001", "::ffff:10.0.0.1", "10.0.0.1"},
		{"2001:db8::1", "2001:db8::1", ""},
	} {
		g, err := Parse(tc.in)
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		if g.String() != tc.want || g.IPv4() != tc.v4 {
			t.Errorf("%s: got %s and IPv4 %q, want %s and %q", tc.in, g, g.IPv4(), tc.want, tc.v4)
		}
	}
}

func TestParseNamesTheInputAndTheFault(t *testing.T) {
	for in, want := range map[string]string{
		"":                "neither",
		"10.0.0":          "neither",
		"10.0.0.1/24":     "neither",
		"fe80::1%eth0":    "no zone",
		"::":              "unspecified",
		"0.0.0.0":         "unspecified",
		"::1":             "loopback",
		"127.0.0.1":       "loopback",
		"ff02::1":         "multicast",
		"224.0.0.1":       "multicast",
		"255.255.255.255": "broadcast",
	} {
		_, err := Parse(in)
		if err == nil {
			t.Errorf("%q was accepted", in)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"`+in+`"`) {
			t.Errorf("%q: error %q does not name the input and %q", in, err, want)
		}
	}
}

func TestFromMACIsTheDefaultGIDOfThePort(t *testing.T) {
	g, err := FromMACString("52:54:00:12:34:56")
	if err != nil {
		t.Fatal(err)
	}
	if g.String() != "fe80::5054:ff:fe12:3456" {
		t.Fatalf("got %s", g)
	}
	for _, bad := range []string{"", "52:54:00:12:34", "52:54:00:12:34:56:78:9a", "zz:54:00:12:34:56"} {
		if _, err := FromMACString(bad); err == nil {
			t.Errorf("MAC %q was accepted", bad)
		}
	}
}

func TestFromBytesTakesSixteenOnly(t *testing.T) {
	for n := range 33 {
		_, err := FromBytes(make([]byte, n))
		if (err == nil) != (n == 16) {
			t.Errorf("%d bytes: error %v", n, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "fe80::1", "::ffff:1.2.3.4", "fe80::1%x", "::", "1:2:3:4:5:6:7:8", "1::2::3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		g, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(g.String())
		if err != nil || again != g {
			t.Fatalf("%q gives %s, which gives %s and %v", s, g, again, err)
		}
	})
}
