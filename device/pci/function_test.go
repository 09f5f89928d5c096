// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/device/guestmem"
)

// recorder is a device that notes what it is told and holds its BAR in memory.
type recorder struct {
	calls  []string
	signal func(int)
	bar    []byte
	reads  []uint64
}

func (r *recorder) Attach(_ *guestmem.Space, signal func(int)) {
	r.signal = signal
	r.calls = append(r.calls, "attach")
}
func (r *recorder) Detach() { r.calls = append(r.calls, "detach") }
func (r *recorder) Reset()  { r.calls = append(r.calls, "reset") }
func (r *recorder) BusMaster(on bool) {
	if on {
		r.calls = append(r.calls, "master on")
	} else {
		r.calls = append(r.calls, "master off")
	}
}

func (r *recorder) ReadBAR(off uint64, p []byte) {
	r.reads = append(r.reads, off)
	copy(p, r.bar[off:])
}
func (r *recorder) WriteBAR(off uint64, p []byte) { copy(r.bar[off:], p) }

// nicConfig is the shape of the network controller this package is for.
func nicConfig(r *recorder) Config {
	r.bar = make([]byte, 64<<10)
	c := Config{
		Vendor: 0x1dd8, Device: 0x1002, SubVendor: 0x1dd8, SubDevice: 0x5400,
		Class: 0x020000, Revision: 1, Express: true, PM: true, Hooks: r,
		MSIX: MSIX{Vectors: 128, TableBAR: 0, TableOffset: 0x8000, PBABAR: 0, PBAOffset: 0x9000},
	}
	c.BARs[0] = BAR{Size: 64 << 10, Is64: true, Handler: r}
	c.BARs[2] = BAR{Size: 4 << 20, Is64: true, Prefetch: true}
	c.BARs[4] = BAR{Size: 4 << 10}
	return c
}

func newNIC(t testing.TB) (*Function, *recorder) {
	t.Helper()
	r := &recorder{}
	f, err := New(nicConfig(r))
	if err != nil {
		t.Fatal(err)
	}
	return f, r
}

func read(t testing.TB, f *Function, off uint64, n int) uint64 {
	t.Helper()
	var b [8]byte
	if err := f.ReadConfig(off, b[:n]); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b[:])
}

func write(t testing.TB, f *Function, off uint64, n int, v uint64) {
	t.Helper()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	if err := f.WriteConfig(off, b[:n]); err != nil {
		t.Fatal(err)
	}
}

func TestIdentityIsWhatWasConfigured(t *testing.T) {
	f, _ := newNIC(t)
	for _, c := range []struct {
		off  uint64
		n    int
		want uint64
	}{
		{0x00, 4, 0x10021dd8}, {0x08, 4, 0x02000001}, {0x0e, 1, 0},
		{0x2c, 4, 0x54001dd8}, {0x06, 2, 0x0010}, {0x3d, 1, 0}, {0x34, 1, 0x40},
	} {
		if got := read(t, f, c.off, c.n); got != c.want {
			t.Errorf("config %#x = %#x, want %#x", c.off, got, c.want)
		}
		write(t, f, c.off, c.n, ^uint64(0))
		if got := read(t, f, c.off, c.n); got != c.want {
			t.Errorf("config %#x = %#x after a write of ones, want %#x", c.off, got, c.want)
		}
	}
}

func TestCommandHoldsWhatWasWritten(t *testing.T) {
	f, r := newNIC(t)
	for _, v := range []uint64{0x0001, 0x0002, 0x0004, 0x0406, 0x0147, 0x0000} {
		write(t, f, regCommand, 2, v)
		if got := read(t, f, regCommand, 2); got != v {
			t.Errorf("COMMAND = %#x, want %#x", got, v)
		}
	}
	write(t, f, regCommand, 2, 0xffff)
	if got := read(t, f, regCommand, 2); got != cmdWritable {
		t.Errorf("COMMAND = %#x after a write of ones, want %#x", got, cmdWritable)
	}
	want := []string{"master on", "master off", "master on"}
	// 4 and 0x406 and 0x147 have the bit; the device hears of changes only.
	if !slices.Equal(r.calls, want) {
		t.Errorf("calls %q, want %q", r.calls, want)
	}
}

// The sequences are those of cloud-hypervisor, which sizes BARs by config
// writes only, and of QEMU's ROM probe.
func TestBARSizingByConfigWrites(t *testing.T) {
	f, _ := newNIC(t)
	size := func(reg uint64) uint64 {
		write(t, f, reg, 4, 0xffffffff)
		return read(t, f, reg, 4)
	}
	want := map[uint64]uint64{
		0x10: 0xffff0004, 0x14: 0xffffffff, // 64 KiB, 64-bit
		0x18: 0xffc0000c, 0x1c: 0xffffffff, // 4 MiB, 64-bit, prefetchable
		0x20: 0xfffff000, // 4 KiB, 32-bit
		0x24: 0, 0x30: 0, // absent, no ROM
	}
	for reg, w := range want {
		if got := size(reg); got != w {
			t.Errorf("register %#x sizes as %#x, want %#x", reg, got, w)
		}
	}
	mask := size(0x10)&^0xf | size(0x14)<<32
	if got := ^mask + 1; got != 64<<10 {
		t.Errorf("BAR0 size %#x, want 64 KiB", got)
	}
	write(t, f, 0x30, 4, 0xfffff800)
	if got := read(t, f, 0x30, 4); got != 0 {
		t.Errorf("ROM register = %#x, want 0: there is no ROM", got)
	}
	write(t, f, 0x10, 8, 0x0000_0001_fe03_0000)
	if got := read(t, f, 0x10, 8); got != 0x0000_0001_fe03_0004 {
		t.Errorf("BAR0 = %#x after an address was written", got)
	}
}

func TestAccessesOfEverySizeAndAlignmentAgree(t *testing.T) {
	f, _ := newNIC(t)
	var whole [ConfigSize]byte
	if err := f.ReadConfig(0, whole[:]); err != nil {
		t.Fatal(err)
	}
	for off := range 300 {
		for n := 1; n <= 8; n++ {
			p := make([]byte, n)
			if err := f.ReadConfig(uint64(off), p); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p, whole[off:off+n]) {
				t.Fatalf("%d bytes at %#x = % x, want % x", n, off, p, whole[off:off+n])
			}
		}
	}
	// A write across COMMAND and STATUS, one byte early.
	if err := f.WriteConfig(3, []byte{0xff, 0x06, 0x04, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, f, 0, 8); got != 0x0010_0406_1002_1dd8 {
		t.Errorf("header = %#x after an unaligned write", got)
	}
	for i, b := range whole[256:] {
		if b != 0 {
			t.Fatalf("extended config byte %#x = %#x, want 0", 256+i, b)
		}
	}
}

func TestOutOfRangeAccessesAreRefused(t *testing.T) {
	f, r := newNIC(t)
	p := make([]byte, 8)
	for name, err := range map[string]error{
		"config read over the end":  f.ReadConfig(ConfigSize-4, p),
		"config write over the end": f.WriteConfig(ConfigSize-4, p),
		"config read that wraps":    f.ReadConfig(^uint64(0), p),
		"BAR read over the end":     f.ReadBAR(0, 64<<10-4, p),
		"BAR write that wraps":      f.WriteBAR(2, ^uint64(3), p),
		"absent BAR":                f.ReadBAR(5, 0, p),
		"upper half of a BAR":       f.WriteBAR(1, 0, p),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		} else if !strings.Contains(err.Error(), "client's") {
			t.Errorf("%s: %q does not say whose mistake it is", name, err)
		}
	}
	if len(r.reads) != 0 {
		t.Errorf("the handler saw reads at %v", r.reads)
	}
}

func TestHandlerNeverSeesTheMSIXRanges(t *testing.T) {
	f, r := newNIC(t)
	for i := range r.bar {
		r.bar[i] = 0xaa
	}
	p := make([]byte, 64<<10)
	if err := f.ReadBAR(0, 0, p); err != nil {
		t.Fatal(err)
	}
	hidden := func(off int) bool {
		return off >= 0x8000 && off < 0x8000+128*16 || off >= 0x9000 && off < 0x9000+16
	}
	for off, b := range p {
		if want := byte(0xaa); hidden(off) != (b == 0) || !hidden(off) && b != want {
			t.Fatalf("BAR0 byte %#x = %#x", off, b)
		}
	}
	for i := range p {
		p[i] = 0x55
	}
	if err := f.WriteBAR(0, 0, p); err != nil {
		t.Fatal(err)
	}
	for off, b := range r.bar {
		if hidden(off) != (b == 0xaa) {
			t.Fatalf("handler byte %#x = %#x after a write of the whole BAR", off, b)
		}
	}
	if err := f.ReadBAR(2, 4<<20-8, p[:8]); err != nil || !slices.Equal(p[:8], make([]byte, 8)) {
		t.Errorf("BAR without a handler read % x, %v", p[:8], err)
	}
}

func TestBARAccessDoesNotAllocate(t *testing.T) {
	f, r := newNIC(t)
	r.reads = make([]uint64, 0, 4096)
	p := make([]byte, 8)
	n := testing.AllocsPerRun(1000, func() {
		if f.WriteBAR(0, 0x2000, p) != nil || f.ReadBAR(0, 0x2000, p) != nil {
			t.Error("access failed")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per access", n)
	}
}

func TestConfigMistakesAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		break_ func(*Config)
		want   string
	}{
		"no hooks":           {func(c *Config) { c.Hooks = nil }, "no hooks"},
		"class too wide":     {func(c *Config) { c.Class = 1 << 24 }, "class"},
		"odd BAR size":       {func(c *Config) { c.BARs[4].Size = 0x3000 }, "BAR4 size 0x3000"},
		"tiny BAR":           {func(c *Config) { c.BARs[4].Size = 8 }, "BAR4"},
		"64-bit last BAR":    {func(c *Config) { c.BARs[5] = BAR{Size: 4096, Is64: true} }, "BAR5"},
		"overlapping pair":   {func(c *Config) { c.BARs[1].Size = 4096 }, "BAR1"},
		"huge 32-bit BAR":    {func(c *Config) { c.BARs[4].Size = 1 << 32 }, "64-bit"},
		"attributes only":    {func(c *Config) { c.BARs[5].Prefetch = true }, "BAR5"},
		"no vectors":         {func(c *Config) { c.MSIX.Vectors = 0 }, "0 MSI-X vectors"},
		"too many vectors":   {func(c *Config) { c.MSIX.Vectors = 2049 }, "2049"},
		"table out of BAR":   {func(c *Config) { c.MSIX.TableOffset = 0x10000 }, "table"},
		"table in no BAR":    {func(c *Config) { c.MSIX.TableBAR = 5 }, "absent BAR5"},
		"PBA unaligned":      {func(c *Config) { c.MSIX.PBAOffset = 0x9008 }, "pending-bit"},
		"table and PBA page": {func(c *Config) { c.MSIX.PBAOffset = 0x8000 }, "share a page"},
	} {
		cfg := nicConfig(&recorder{})
		c.break_(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
}
