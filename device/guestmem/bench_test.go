// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"
	"sync/atomic"
	"testing"
)

func TestHotPathsDoNotAllocate(t *testing.T) {
	s, _, _ := spanning(t)
	small, large := make([]byte, 64), make([]byte, 0x4000)
	for name, f := range map[string]func(){
		"ReadAt":          func() { _ = s.ReadAt(small, 0x10010) },
		"WriteAt":         func() { _ = s.WriteAt(small, 0x10010) },
		"ReadAt spanning": func() { _ = s.ReadAt(large, 0x10010) },
		"Check":           func() { _ = s.Check(0x10010, 0x4000, rw) },
		"Load":            func() { _, _ = s.LoadUint64(0x10010) },
		"Store":           func() { _ = s.StoreUint32(0x10010, 1) },
		"Add":             func() { _, _ = s.AddUint64(0x10010, 1) },
		"CompareAndSwap":  func() { _, _ = s.CompareAndSwapUint64(0x10010, 1, 2) },
		"Pin one": func() {
			v, _ := s.Pin(0x10010, 64, rw)
			_ = v.CopyOut(small, 0)
			_ = v.Segment(0)
			v.Release()
		},
		"Pin many": func() {
			v, _ := s.Pin(0x10010, 0x4000, rw)
			_ = v.CopyOut(large, 0)
			v.Release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			if raceEnabled && (name == "Pin many" || name == "ReadAt spanning") {
				f() // the race detector makes sync.Pool drop items at random
				return
			}
			if n := testing.AllocsPerRun(1000, f); n >= 0.5 {
				t.Errorf("%v allocations for each call", n)
			}
		})
	}
}

func benchSpace(b *testing.B, windows int) *Space {
	s := newSpace(b, Options{})
	fd := memfd(b, 64<<20)
	if windows == 1 {
		mustMap(b, s, 0, 64<<20, fd, 0, rw)
	}
	for i := range uint64(windows) {
		if windows > 1 {
			mustMap(b, s, i*4096, 4096, fd, i*4096%(64<<20), rw)
		}
	}
	touch := make([]byte, 1<<20)
	if err := s.WriteAt(touch, 0); err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkReadAt(b *testing.B) {
	for _, windows := range []int{1, 8192} {
		for _, n := range []int{64, 4096, 1 << 20} {
			b.Run(fmt.Sprintf("windows=%d/bytes=%d", windows, n), func(b *testing.B) {
				s, p := benchSpace(b, windows), make([]byte, n)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					_ = s.ReadAt(p, 0)
				}
			})
		}
	}
}

func BenchmarkWriteAt(b *testing.B) {
	for _, n := range []int{64, 4096} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			s, p := benchSpace(b, 1), make([]byte, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				_ = s.WriteAt(p, 0)
			}
		})
	}
}

func BenchmarkPin(b *testing.B) {
	for _, windows := range []int{1, 8, 8192} {
		b.Run(fmt.Sprintf("windows=%d", windows), func(b *testing.B) {
			s := benchSpace(b, max(windows, 256))
			if windows == 1 {
				s = benchSpace(b, 1)
			}
			b.ReportAllocs()
			for b.Loop() {
				v, err := s.Pin(4096, 4096, Read)
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
			}
		})
	}
	b.Run("256-page-windows", func(b *testing.B) {
		s := benchSpace(b, 8192)
		b.ReportAllocs()
		for b.Loop() {
			v, err := s.Pin(0, 1<<20, Read)
			if err != nil {
				b.Fatal(err)
			}
			v.Release()
		}
	})
}

func BenchmarkPinParallel(b *testing.B) {
	for _, c := range []struct {
		name   string
		stride uint64
	}{{"same-page", 0}, {"own-pages", 4096}} {
		b.Run(c.name, func(b *testing.B) {
			s := benchSpace(b, 1)
			var id atomic.Uint64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				at := id.Add(1) * c.stride
				for pb.Next() {
					v, _ := s.Pin(at, 64, Read)
					v.Release()
				}
			})
		})
	}
}

func BenchmarkAtomic(b *testing.B) {
	s := benchSpace(b, 1)
	b.Run("LoadUint64", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = s.LoadUint64(64)
		}
	})
	b.Run("StoreUint32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.StoreUint32(64, 1)
		}
	})
	b.Run("AddUint64", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = s.AddUint64(64, 1)
		}
	})
	b.Run("CompareAndSwapUint64", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = s.CompareAndSwapUint64(128, 0, 0)
		}
	})
}

func BenchmarkMapUnmap(b *testing.B) {
	for _, windows := range []int{0, 1000, 60000} {
		b.Run(fmt.Sprintf("windows=%d", windows), func(b *testing.B) {
			s := newSpace(b, Options{})
			fd := memfd(b, 1<<20)
			for i := range uint64(windows) {
				mustMap(b, s, i*8192, 4096, fd, 0, rw)
			}
			at := uint64(windows)*4096/8192*8192 + 4096
			b.ReportAllocs()
			for b.Loop() {
				mustMap(b, s, at, 4096, fd, 0, rw)
				if err := s.Unmap(at, 4096); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
