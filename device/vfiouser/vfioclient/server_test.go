// SPDX-License-Identifier: Apache-2.0

package vfioclient

import (
	"bytes"
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ernic-dev/ernic/device/vfiouser"
)

// memoryDevice is a device whose BAR0 is memory, served by the real server.
type memoryDevice struct {
	mu      sync.Mutex
	bar     [4096]byte
	writes  int
	session chan *vfiouser.Session
}

func (d *memoryDevice) Info() vfiouser.Info {
	var in vfiouser.Info
	in.Regions[0] = vfiouser.RegionInfo{Size: 4096, Flags: vfiouser.Readable | vfiouser.Writable}
	in.Regions[vfiouser.RegionConfig] = vfiouser.RegionInfo{Size: 256, Flags: vfiouser.Readable | vfiouser.Writable}
	in.IRQs[vfiouser.IRQErr].Count = 1
	return in
}

func (d *memoryDevice) RegionRead(region int, off uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if region == 0 {
		copy(p, d.bar[off:])
	}
	return nil
}

func (d *memoryDevice) RegionWrite(region int, off uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if region == 0 {
		d.writes++
		copy(d.bar[off:], p)
	}
	return nil
}

func (d *memoryDevice) Attach(s *vfiouser.Session) error { d.session <- s; return nil }
func (d *memoryDevice) Detach(error)                     {}

// serve starts the server and returns a realized client.
func serve(t *testing.T) (*Client, *memoryDevice, *vfiouser.Session) {
	t.Helper()
	d := &memoryDevice{session: make(chan *vfiouser.Session, 1)}
	path := filepath.Join(t.TempDir(), "dev.sock")
	l, err := vfiouser.Listen(path, vfiouser.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var s vfiouser.Server
	go func() { done <- s.Serve(ctx, l, d) }()
	c, err := Dial(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if _, err := c.Realize(); err != nil {
		t.Fatal(err)
	}
	return c, d, <-d.session
}

func TestServerKeepsTheOrderOfPostedWrites(t *testing.T) {
	c, d, _ := serve(t)
	for i := range 3000 {
		if err := c.PostRegion(0, uint64(i%512)*8, []byte{byte(i), byte(i >> 8), 1, 2, 3, 4, 5, 6}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.PostMulti([]MultiWrite{{0, 0, []byte{0xaa, 0xbb}}, {0, 1, []byte{0xcc}}, {0, 8, []byte{1, 2, 3, 4, 5, 6, 7, 8}}}); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 16)
	if err := c.ReadRegion(0, 0, got); err != nil {
		t.Fatal(err)
	}
	if want := []byte{0xaa, 0xcc, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8}; !bytes.Equal(got, want) {
		t.Errorf("a read after posted writes sees % x, want % x", got, want)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writes != 3003 {
		t.Errorf("%d writes arrived, want 3003", d.writes)
	}
}

func TestServerReachesMemoryByDescriptorAndByMessage(t *testing.T) {
	c, _, s := serve(t)
	if err := c.WriteRegion(RegionConfig, 4, []byte{6, 0}); err != nil {
		t.Fatal(err)
	}
	const private = 1 << 40
	c.AddMessageMemory(private, 3<<20)
	if err := c.MapMessageMemory(private, 3<<20, true); err != nil {
		t.Fatal(err)
	}
	message := func(f func(context.Context, []byte, uint64) error) func([]byte, uint64) error {
		return func(p []byte, at uint64) error { return f(t.Context(), p, at) }
	}
	for name, w := range map[string]struct {
		at          uint64
		write, read func([]byte, uint64) error
	}{
		"descriptor": {4<<30 + 100, s.Mem().WriteAt, s.Mem().ReadAt},
		"message":    {private + 100, message(s.DMAWrite), message(s.DMARead)},
	} {
		data := bytes.Repeat([]byte(name), 200_000) // above one transfer
		if err := w.write(data, w.at); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := make([]byte, len(data))
		if err := c.ReadMessageMemory(w.at, got); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: the guest sees something else than the device wrote, %v", name, err)
		}
		clear(got)
		if err := w.read(got, w.at); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: the device reads something else than it wrote, %v", name, err)
		}
	}
	if err := c.UnmapDMA(private, 3<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.DMARead(t.Context(), make([]byte, 1), private); err == nil {
		t.Error("memory that was unmapped can be read")
	}
	// What a hypervisor with a virtual IOMMU does: ranges that were never mapped.
	if err := c.UnmapDMA(0xfef00000, 0xffffffff01100000); err != nil {
		t.Errorf("unmap up to the end of the address space: %v", err)
	}
}
