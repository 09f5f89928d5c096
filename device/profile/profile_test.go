// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func print(t *testing.T, s Set) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCompat_IsTheDescribedDevice(t *testing.T) {
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	got := print(t, s)
	want := `
[identity]
asic_type = none
asic_rev = 0
fw_version = rocm-ernic-1.0

[link]
speed_mbps = 100000
xcvr = copper
mtu_max = 9198
offloads = off

[stats]
interval_ms = 1000

[queues]
eth = 4
rdma_eqs = 32
intr_vectors = 32
`
	if header, values, _ := strings.Cut(got, "\n\n"); "\n"+values != want ||
		!strings.HasPrefix(header, "# NIC profile\n# layers: compat\n# hash: ") || len(header) != len("# NIC profile\n# layers: compat\n# hash: ")+16 {
		t.Errorf("printed\n%s", got)
	}
}

func TestBuiltins_HaveTheirShape(t *testing.T) {
	for _, tc := range []struct {
		name              string
		eth, eqs, vectors int
		speed             int
		xcvr              Xcvr
		offloads, short   bool
	}{
		{"compat", 4, 32, 32, 100000, XcvrCopper, false, true},
		{"small-vm", 2, 4, 7, 100000, XcvrCopper, false, false},
		{"generic-100g", 16, 32, 49, 100000, XcvrFiber, true, false},
		{"generic-400g", 64, 32, 97, 400000, XcvrFiber, true, false},
	} {
		s, err := Load(tc.name)
		if err != nil {
			t.Fatal(err)
		}
		if s.EthQueues != tc.eth || s.RDMAEQs != tc.eqs || s.Vectors() != tc.vectors || s.SpeedMbps != tc.speed || s.Xcvr != tc.xcvr ||
			s.Offloads != tc.offloads {
			t.Errorf("%s: %+v", tc.name, s.Profile)
		}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if (s.Shortfall() != "") != tc.short {
			t.Errorf("%s: shortfall %q", tc.name, s.Shortfall())
		}
	}
	if !slices.Equal(Names(), []string{"compat", "generic-100g", "generic-400g", "small-vm"}) {
		t.Errorf("built-in profiles %v", Names())
	}
}

func TestLayers_LaterOnesWinKeyByKey(t *testing.T) {
	fast := write(t, "fast.ini", "# fast\n; and more\n[identity]\nfw_version = 1.8.0-E-32\n\n[link]\nspeed_mbps = 400000\nxcvr = fiber\n")
	more := write(t, "more.ini", "[link]\n  speed_mbps=25000  \n[queues]\nintr_vectors = auto\n[link]\noffloads = on\n")
	s, err := Load("small-vm", fast, more)
	if err != nil {
		t.Fatal(err)
	}
	if s.FWVersion != "1.8.0-E-32" || s.SpeedMbps != 25000 || s.Xcvr != XcvrFiber || s.EthQueues != 2 || s.Vectors() != 7 || !s.Offloads {
		t.Errorf("merged to %+v", s.Profile)
	}
	if want := []string{"compat", "small-vm", fast, more}; !slices.Equal(s.Layers, want) {
		t.Errorf("layers %v", s.Layers)
	}
}

func TestPrint_LoadsBackToTheSameValues(t *testing.T) {
	s, err := Load("generic-400g", write(t, "x.ini", "[identity]\nasic_type = salina\nasic_rev = 255\nfw_version = a b = c # d\n[stats]\ninterval_ms = 10\n"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Load(write(t, "printed.ini", print(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	if again.Profile != s.Profile || again.Hash() != s.Hash() {
		t.Errorf("loaded back as %+v, want %+v", again.Profile, s.Profile)
	}
}

func TestHash_ChangesWithEveryKey(t *testing.T) {
	seen := map[uint64]string{}
	base := Compat()
	seen[base.Hash()] = "compat"
	for k, v := range map[string]string{
		"identity.asic_type": "elba", "identity.asic_rev": "1", "identity.fw_version": "x", "link.speed_mbps": "1000",
		"link.xcvr": "none", "link.mtu_max": "1500", "link.offloads": "on", "stats.interval_ms": "10", "queues.eth": "1",
		"queues.rdma_eqs": "4", "queues.intr_vectors": "auto",
	} {
		p := Compat()
		if err := p.Set(k, v); err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[p.Hash()]; ok {
			t.Errorf("%s has the hash of %s", k, other)
		}
		seen[p.Hash()] = k
	}
	if len(seen) != len(keys)+1 {
		t.Errorf("%d keys tried of %d", len(seen)-1, len(keys))
	}
}

func TestLoad_NamesFileLineAndKeyAndChangesNothing(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"[identity]\nasic_type = pensando\n", ":2: key identity.asic_type: \"pensando\" is none of none, capri, elba, giglio, salina"},
		{"[identity]\nasic_rev = 256\n", ":2: key identity.asic_rev: 256 is not within 0..255"},
		{"[identity]\nasic_rev = 1.5\n", ":2: key identity.asic_rev: \"1.5\" is not a decimal number"},
		{"[identity]\nasic_rev = 007\n", ":2: key identity.asic_rev: \"007\" is not a decimal number"},
		{"[identity]\nfw_version =\n", ":2: key identity.fw_version: 0 characters, want 1..31"},
		{"[identity]\nfw_version = 01234567890123456789012345678901\n", ":2: key identity.fw_version: 32 characters, want 1..31"},
		{"[identity]\nfw_version = a\\b\n", ":2: key identity.fw_version: character 2, '\\\\', is not printable ASCII or is a backslash"},
		{"[link]\nspeed_mbps = 123\n", ":2: key link.speed_mbps: 123 is none of [1000 10000 25000 40000 50000 100000 200000 400000]"},
		{"[link]\nmtu_max = 9583\n", ":2: key link.mtu_max: 9583 is not within 1500..9582"},
		{"[link]\noffloads = maybe\n", ":2: key link.offloads: \"maybe\" is neither off nor on"},
		{"[stats]\ninterval_ms = 9\n", ":2: key stats.interval_ms: 9 is not within 10..60000"},
		{"[queues]\neth = 65\n", ":2: key queues.eth: 65 is not within 1..64"},
		{"[queues]\nrdma_eqs = 3\n", ":2: key queues.rdma_eqs: 3 is not within 4..32"},
		{"[queues]\nintr_vectors = 129\n", ":2: key queues.intr_vectors: 129 is not within 2..128, and not auto"},
		{"\n[queue]\n", ":2: unknown section [queue]"},
		{"[queues\neth = 1\n", ":1: unknown section [queues"},
		{"[queues]\n\nqueues = 1\n", ":3: unknown key queues.queues"},
		{"[queues]\nspeed_mbps = 1000\n", ":2: unknown key queues.speed_mbps"},
		{"eth = 1\n", ":1: key eth is in no section"},
		{"[queues]\neth\n", ":2: \"eth\" is neither a [section] nor key = value"},
		{"[queues]\neth = 2\n[link]\n[queues]\neth = 2\n", ":5: key queues.eth is set a second time, first in line 2"},
	} {
		path := write(t, "bad.ini", "[queues]\nrdma_eqs = 8\n")
		s, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		before := s
		bad := write(t, "bad.ini", tc.text)
		if err := s.Add(bad); err == nil || err.Error() != bad+tc.want {
			t.Errorf("%q: %v, want %s", tc.text, err, tc.want)
		}
		if !reflect.DeepEqual(s, before) {
			t.Errorf("%q: the failing layer changed %+v", tc.text, s)
		}
	}
}

func TestLoad_MissingLayers(t *testing.T) {
	for name, want := range map[string]string{
		"generic-800g":    "generic-100g",
		"./missing.ini":   "missing.ini",
		"missing.ini":     "missing.ini",
		t.TempDir() + "/": "directory",
		write(t, "large.ini", strings.Repeat("#\n", 40<<10)): "larger than",
	} {
		s, err := Load("small-vm", name)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if s.Profile != Compat() {
			t.Errorf("%s: the failing load gave %+v", name, s.Profile)
		}
	}
}

func TestSet_WinsOverLayers(t *testing.T) {
	s, err := Load("generic-100g")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set("queues.eth", "3"); err != nil || s.EthQueues != 3 {
		t.Errorf("%d queues, %v", s.EthQueues, err)
	}
	for _, bad := range [][2]string{{"queues.eth", "0"}, {"queues.x", "1"}, {"eth", "1"}} {
		if err := s.Set(bad[0], bad[1]); err == nil || s.EthQueues != 3 {
			t.Errorf("%v was accepted", bad)
		}
	}
}

func TestCheck_FindsEveryFieldOutOfRange(t *testing.T) {
	for name, spoil := range map[string]func(*Profile){
		"asic_type": func(p *Profile) { p.AsicType = 5 }, "fw_version": func(p *Profile) { p.FWVersion = " x" },
		"speed_mbps": func(p *Profile) { p.SpeedMbps = 5 }, "xcvr": func(p *Profile) { p.Xcvr = 3 },
		"mtu_max": func(p *Profile) { p.MTUMax = 9999 }, "interval_ms": func(p *Profile) { p.StatsIntervalMS = 0 },
		"eth": func(p *Profile) { p.EthQueues = 0 }, "rdma_eqs": func(p *Profile) { p.RDMAEQs = 33 },
		"intr_vectors": func(p *Profile) { p.IntrVectors = 1 },
	} {
		p := Compat()
		spoil(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte("[queues]\neth = 4\n"))
	f.Add([]byte("# x\n[link]\r\nxcvr=fiber\n[identity]\nfw_version = \x7f\n"))
	f.Add([]byte("[]\n=\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := Compat()
		if err := p.merge("fuzz.ini", text); err != nil {
			if p != Compat() {
				t.Fatal("a failing layer changed the profile")
			}
			return
		}
		if err := p.Check(); err != nil {
			t.Fatalf("accepted, but %v", err)
		}
		s := Set{Profile: p}
		var b bytes.Buffer
		if err := s.Print(&b); err != nil {
			t.Fatal(err)
		}
		q := Compat()
		if err := q.merge("printed", b.Bytes()); err != nil || q != p {
			t.Fatalf("printed profile loads as %+v, %v", q, err)
		}
	})
}
