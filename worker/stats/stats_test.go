// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/ionic"
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/intr"
	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/device/vfiouser"
	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

// deaf is an RDMA link that takes everything.
type deaf struct{}

func (deaf) Transmit(_ *packet.Address, p *packet.Packet) qp.Verdict {
	p.Release()
	return qp.Sent
}

// newSource is a worker without guest and mesh, but with peers that are made up.
func newSource(t testing.TB, peers ...fabric.PeerStats) *Source {
	t.Helper()
	s := &Source{
		Identity: func() Identity {
			return Identity{
				Name: "vm1", Node: 3, MAC: [6]byte{2, 0xaa, 0xbb, 0xcc, 0xdd, 1}, LIF: "none", Fabric: "mesh",
				Manager: "127.0.0.1:6320", Profile: "compat > small-vm", ProfileHash: 0xabc, Interval: time.Second,
			}
		},
		Attached: func() bool { return false },
		Carrier:  func(f func(string, uint64)) { f("packets_no_route", 5) },
		Self:     func() uint32 { return 3 },
		Peers:    func() []fabric.PeerStats { return peers },
		Server:   &vfiouser.Server{},
	}
	nic, err := ionic.New(ionic.Config{
		Profile: profile.Compat(), MAC: [6]byte{2, 0xaa, 0xbb, 0xcc, 0xdd, 1}, Log: zerolog.Nop(),
		RDMA: func(b *intr.Bank) (ionic.RDMA, error) {
			var err error
			s.Engine, err = rdma.New(rdma.Config{Limits: rdma.Limits{EQs: 32}, Interrupts: b, Link: deaf{}, Log: zerolog.Nop()})
			return s.Engine, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.NIC = nic
	t.Cleanup(func() {
		_ = nic.Close()
		s.Engine.Close()
	})
	return s
}

func twoPeers() []fabric.PeerStats {
	own := fabric.PeerStats{Node: 3, State: fabric.PeerUp, Lanes: 4, TxFrames: 1000}
	up := fabric.PeerStats{Node: 4, State: fabric.PeerUp, Lanes: 4, TxFrames: 7, RxBytes: 900, RTT: 2 * time.Millisecond}
	up.Drops[fabric.DropLinkDown] = 6
	bad := fabric.PeerStats{Node: 5, State: fabric.PeerBackoff, TxFrames: 1, ConnectFailures: 2, LastError: "refused\nby \"peer\""}
	return []fabric.PeerStats{own, up, bad, {Node: 6}}
}

// full is a snapshot in which every counter of the blocks has a value of its own.
func full() *Snapshot {
	s := &Snapshot{
		Time: time.Unix(1000, 0), Self: 3, Peers: twoPeers()[:3],
		Identity: Identity{Name: "vm1", Profile: "compat > small-vm", ProfileHash: 0x1234},
		QPs: []QP{
			{ID: 2, Type: "RC", State: "RTS", Peer: 9, Counters: []Counter{{"tx_rdma_ucast_bytes", 11}}},
			{ID: 77, Type: "UD", State: "RTS", Counters: []Counter{{"tx_rdma_ucast_bytes", 12}}},
		},
	}
	s.Device.Objects.QPs = 3
	for i := range s.LIF {
		s.LIF[i] = 1000 + uint64(i)
	}
	for i := range s.Port {
		s.Port[i] = 1<<63 + uint64(i)
	}
	return s
}

// lines parses the text form: section title, then name, then value.
func lines(t *testing.T, text string) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	title, before := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch name, value, ok := strings.Cut(line, " : "); {
		case ok:
			if _, twice := out[title][name]; twice || value == "" || title == "" {
				t.Errorf("line %q in section %q: twice, empty or outside", line, title)
			}
			out[title][name] = value
		case line != "" && strings.Trim(line, "-") == "":
			title = before
			out[title] = map[string]string{}
		}
		before = line
	}
	return out
}

func TestText_ShowsEveryNamedCounterOfBothBlocks(t *testing.T) {
	s := full()
	got := lines(t, string(section.Encode(nil, section.Text, s.Sections())))
	named := 0
	for i, name := range abi.LIFStatNames {
		if name == "" {
			continue
		}
		named++
		if v := got["LIF Statistics"][name]; v != fmt.Sprint(s.LIF[i]) {
			t.Errorf("LIF %s : %q, want %d", name, v, s.LIF[i])
		}
	}
	if n := len(got["LIF Statistics"]); n != named {
		t.Errorf("%d LIF lines, want %d", n, named)
	}
	if n := len(got["Port Statistics"]); n != 89 {
		t.Errorf("%d port lines, want 89", n)
	}
	for i, name := range abi.PortStatNames {
		if v := got["Port Statistics"][name]; v != fmt.Sprint(s.Port[i]) {
			t.Errorf("port %s : %q, want %d", name, v, s.Port[i])
		}
	}
	for _, w := range [][3]string{
		{"Instance", "nic_profile", "compat > small-vm"}, {"Instance", "nic_profile_hash", "0000000000001234"},
		{"Instance", "manager", "-"}, {"Per-QP Statistics", "alive", "3"}, {"Per-QP Statistics", "shown", "2"},
		{"Per-QP Statistics", "qp.2.peer_qp", "9"}, {"Per-QP Statistics", "qp.77.tx_rdma_ucast_bytes", "12"},
		{"Mesh Statistics", "peers_up", "1"}, {"Mesh Statistics", "peers_backoff", "1"},
		{"Mesh Statistics", "tx_frames", "8"}, {"Mesh Statistics", "drop_link_down", "6"},
		{"Mesh Statistics", "peer.3.tx_frames", "1000"}, {"Mesh Statistics", "peer.5.last_error", `refused by "peer"`},
	} {
		if v := got[w[0]][w[1]]; v != w[2] {
			t.Errorf("%s, %s : %q, want %q", w[0], w[1], v, w[2])
		}
	}
}

// flatten makes the text form's names out of JSON.
func flatten(prefix string, v any, out map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			flatten(prefix+"."+k, e, out)
		}
	case json.Number:
		out[prefix[1:]] = v.String()
	case string:
		out[prefix[1:]] = v
	}
}

func TestJSON_SaysWhatTheTextSays(t *testing.T) {
	sections := full().Sections()
	d := json.NewDecoder(strings.NewReader(string(section.Encode(nil, section.JSON, sections))))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	text := lines(t, string(section.Encode(nil, section.Text, sections)))
	if len(v) != len(sections) || len(text) != len(sections) {
		t.Fatalf("%d JSON objects and %d text sections of %d", len(v), len(text), len(sections))
	}
	for _, s := range sections {
		flat := map[string]string{}
		flatten("", v[s.Key], flat)
		if len(flat) != len(text[s.Title]) {
			t.Errorf("%s: %d fields in JSON, %d in text", s.Title, len(flat), len(text[s.Title]))
		}
		for name, want := range text[s.Title] {
			got := flat[name]
			if got == "" {
				got = "-"
			}
			if strings.ReplaceAll(got, "\n", " ") != want {
				t.Errorf("%s, %s: %q in JSON, %q in text", s.Title, name, got, want)
			}
		}
	}
}

func TestTake_ReadsTheWholeWorker(t *testing.T) {
	s := newSource(t, twoPeers()...).Take(MaxQPs)
	if len(s.Peers) != 3 {
		t.Errorf("%d peers, want the three a link was asked for", len(s.Peers))
	}
	for _, sec := range s.Sections() {
		if len(sec.Fields) == 0 {
			t.Errorf("section %s is empty", sec.Title)
		}
	}
	p := &s.Process
	if p.PID != os.Getpid() || p.Resident == 0 || p.OpenFiles < 3 || p.Goroutines == 0 || p.Heap == 0 {
		t.Errorf("process %+v", *p)
	}
	if s.Device.Link || s.Device.Attached {
		t.Error("a worker without a guest and a port shows both")
	}
}

func TestTake_OfNothingIsEmpty(t *testing.T) {
	text := string(section.Encode(nil, section.Text, new(Source).Take(1).Sections()))
	if got := lines(t, text)["LIF Statistics"]["rx_ucast_bytes"]; got != "0" {
		t.Errorf("rx_ucast_bytes : %q", got)
	}
}

func TestFile_ReadersAlwaysFindAWholeOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats.json")
	f := &File{Path: path, Format: section.JSON, Interval: time.Millisecond, Source: newSource(t), Log: zerolog.Nop()}
	if err := f.Write(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		var err error
		for i := 0; i < 50 && err == nil; i++ {
			err = f.Write()
		}
		done <- err
	}()
	for reads := 0; ; reads++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			if reads == 0 {
				t.Error("nothing was read meanwhile")
			}
			if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file beside it is left: %v", err)
			}
			return
		default:
		}
		b, err := os.ReadFile(path)
		if err != nil || !json.Valid(b) {
			t.Fatalf("read %d bytes that are no JSON (%v)", len(b), err)
		}
	}
}

func TestFile_NamesThePathThatCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "stats")
	f := &File{Path: path, Format: section.Text, Source: new(Source), Log: zerolog.Nop()}
	if err := f.Write(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v does not name %s", err, path)
	}
	// A directory in the way of the name: nothing is left beside it.
	dir := t.TempDir()
	f.Path = filepath.Join(dir, "d")
	if err := os.MkdirAll(filepath.Join(f.Path, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(); err == nil {
		t.Error("a directory was replaced")
	}
	if _, err := os.Stat(f.Path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file beside it is left: %v", err)
	}
}

func BenchmarkTake(b *testing.B) {
	s := newSource(b, twoPeers()...)
	b.ReportAllocs()
	for b.Loop() {
		s.Take(0)
	}
}

func BenchmarkEncode(b *testing.B) {
	s := newSource(b, twoPeers()...)
	for _, f := range []section.Format{section.Text, section.JSON} {
		b.Run(string(f), func(b *testing.B) {
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				buf = section.Encode(buf[:0], f, s.Take(0).Sections())
			}
			b.ReportMetric(float64(len(buf)), "bytes")
		})
	}
}

// manyPeers is a worker of a large mesh.
func manyPeers(n int) []fabric.PeerStats {
	var list []fabric.PeerStats
	for i := range n {
		list = append(list, fabric.PeerStats{Node: uint32(i + 1), State: fabric.PeerUp, TxFrames: uint64(i), LastError: strconv.Itoa(i)})
	}
	return list
}
