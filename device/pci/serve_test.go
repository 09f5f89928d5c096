// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/vfiouser"
	"github.com/ernic-dev/ernic/device/vfiouser/vfioclient"
)

// hooked is a device that can be asked from the test what it was told.
type hooked struct {
	mu  sync.Mutex
	rec recorder
	mem *guestmem.Space
}

func (h *hooked) with(f func(*recorder)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.rec)
}
func (h *hooked) Attach(m *guestmem.Space, signal func(int)) {
	h.with(func(r *recorder) { h.mem = m; r.Attach(m, signal) })
}
func (h *hooked) Detach()                       { h.with((*recorder).Detach) }
func (h *hooked) Reset()                        { h.with((*recorder).Reset) }
func (h *hooked) BusMaster(on bool)             { h.with(func(r *recorder) { r.BusMaster(on) }) }
func (h *hooked) ReadBAR(off uint64, p []byte)  { h.with(func(r *recorder) { r.ReadBAR(off, p) }) }
func (h *hooked) WriteBAR(off uint64, p []byte) { h.with(func(r *recorder) { r.WriteBAR(off, p) }) }

func (h *hooked) calls() (out []string) {
	h.with(func(r *recorder) { out, r.calls = r.calls, nil })
	return out
}

// served starts a server with a function and returns its socket path.
func served(t *testing.T) (*hooked, *Function, string) {
	t.Helper()
	h := &hooked{}
	cfg := nicConfig(&h.rec)
	cfg.Hooks, cfg.BARs[0].Handler = h, h
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pci.sock")
	l, err := vfiouser.Listen(path, vfiouser.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var s vfiouser.Server
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l, f) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("server: %v", err)
		}
	})
	return h, f, path
}

func realized(t *testing.T, path string) (*vfioclient.Client, *vfioclient.Device) {
	t.Helper()
	c, err := vfioclient.Dial(t.Context(), path, vfioclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	d, err := c.Realize()
	if err != nil {
		t.Fatal(err)
	}
	return c, d
}

func TestQEMURealizesTheFunction(t *testing.T) {
	h, _, path := served(t)
	c, d := realized(t, path)
	if want := []string{"attach", "reset"}; !slices.Equal(h.calls(), want) {
		t.Errorf("the device was not told %q", want)
	}
	if d.MSIX == nil || d.MSIX.Vectors != 128 || d.MSIX.TableOffset != 0x8000 || d.Express == 0 || d.PM == 0 {
		t.Errorf("realized as %+v", d)
	}
	if r := d.Regions; r[0].Size != 64<<10 || r[1].Size != 0 || r[2].Size != 4<<20 || r[0].Flags != 3 {
		t.Errorf("regions %+v", r)
	}
	if n := c.ErrorSignals(); n != 0 {
		t.Errorf("%d error signals", n)
	}
	// Posted, then read: the read sees the write.
	if err := c.PostRegion(0, 0x100, []byte{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4)
	if err := c.ReadRegion(0, 0x100, p); err != nil || !slices.Equal(p, []byte{1, 2, 3, 4}) {
		t.Errorf("read back % x, %v", p, err)
	}
	if err := c.ReadRegion(0, 0x9000, p); err != nil || !slices.Equal(p, make([]byte, 4)) {
		t.Errorf("pending-bit array reads % x, %v", p, err)
	}
}

func TestVectorsFireOnlyWhileBusMasterIsOn(t *testing.T) {
	h, f, path := served(t)
	c, d := realized(t, path)
	if err := c.EnableMSIX(*d.MSIX); err != nil {
		t.Fatal(err)
	}
	v, err := c.UseVector(5)
	if err != nil {
		t.Fatal(err)
	}
	var signal func(int)
	h.with(func(r *recorder) { signal = r.signal })
	command := func(v byte) {
		if err := c.WriteRegion(vfioclient.RegionConfig, 4, []byte{v, 0}); err != nil {
			t.Fatal(err)
		}
	}
	signal(5)
	if n := v.Fired(); n != 0 || f.DroppedSignals() != 1 {
		t.Errorf("fired %d times without bus mastering, %d dropped", n, f.DroppedSignals())
	}
	command(6)
	signal(5)
	signal(-1)
	signal(128)
	signal(7) // the guest has not enabled it
	if n, err := v.Wait(time.Now().Add(time.Minute)); n != 1 || err != nil {
		t.Errorf("fired %d times, %v", n, err)
	}
	if n := testing.AllocsPerRun(100, func() { signal(5) }); n != 0 {
		t.Errorf("%v allocations per signal", n)
	}
	v.Fired()
	if err := c.ReleaseVector(5); err != nil {
		t.Fatal(err)
	}
	signal(5)
	// All vectors at once, in chunks of descriptors.
	all, err := c.EnableMSIXAtOnce(*d.MSIX, 128)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		signal(i)
	}
	for i, v := range all {
		if n, err := v.Wait(time.Now().Add(time.Minute)); n != 1 || err != nil {
			t.Fatalf("vector %d fired %d times, %v", i, n, err)
		}
	}
	if err := c.DisableMSIX(*d.MSIX); err != nil {
		t.Fatal(err)
	}
	signal(3)
}

func TestFunctionServesOneGuestAfterAnother(t *testing.T) {
	h, _, path := served(t)
	for range 3 {
		c, d := realized(t, path)
		if got := d.Config[4]; got != 0 {
			t.Errorf("the next guest finds COMMAND %#x", got)
		}
		if err := c.WriteRegion(vfioclient.RegionConfig, 4, []byte{6, 0}); err != nil {
			t.Fatal(err)
		}
		if err := c.WriteRegion(vfioclient.RegionConfig, d.Express+8, []byte{0, 0x80}); err != nil {
			t.Fatal(err)
		}
		if err := c.WriteRegion(vfioclient.RegionConfig, 4, []byte{6, 0}); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	want := []string{"attach", "reset", "master on", "master off", "reset", "master on", "detach", "master off", "reset"}
	var got []string
	for len(got) < 3*len(want) {
		got = append(got, h.calls()...)
		if t.Context().Err() != nil {
			t.Fatal("the device was not told of the end")
		}
		time.Sleep(time.Millisecond)
	}
	if !slices.Equal(got, slices.Concat(want, want, want)) {
		t.Errorf("the device was told %q,\nwant three times %q", got, want)
	}
}

func TestAccessesBeyondARegionAreErrorsOfTheClient(t *testing.T) {
	f, _ := newNIC(t)
	p := make([]byte, 4)
	for name, err := range map[string]error{
		"ROM":         f.RegionRead(vfiouser.RegionROM, 0, p),
		"VGA":         f.RegionWrite(vfiouser.RegionVGA, 0, p),
		"config":      f.RegionWrite(vfiouser.RegionConfig, 4096, p),
		"BAR0":        f.RegionRead(vfiouser.RegionBAR0, 1<<40, p),
		"no such one": f.RegionRead(99, 0, p),
	} {
		if err == nil {
			t.Errorf("%s: access was accepted", name)
		}
	}
}
