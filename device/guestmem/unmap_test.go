// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestUnmapWaitsForPinsAndNewPinsOfOthersGoThrough(t *testing.T) {
	fd := memfd(t, 8<<20)
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		defer s.Close()
		mustMap(t, s, 0, 4<<20, fd, 0, rw)
		mustMap(t, s, 4<<20, 4<<20, fd, 4<<20, rw)
		held, err := s.Pin(0x5000, 0x1000, rw)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- s.Unmap(0, 4<<20) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Unmap returned %v with a pin held", err)
		default:
		}
		// The holder nests another pin, on a window that stays.
		other, err := s.Pin(4<<20, 8, rw)
		if err != nil {
			t.Fatal(err)
		}
		// The window that goes is closed for new users, the held view works.
		if _, err := s.Pin(0x5000, 8, rw); err == nil {
			t.Fatal("pinned a window that is being unmapped")
		}
		if err := held.CopyIn([]byte{1}, 0); err != nil {
			t.Fatal(err)
		}
		other.Release()
		held.Release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestPinThroughAnOutdatedTableFails(t *testing.T) {
	s := newSpace(t, Options{})
	mustMap(t, s, 0, 4<<20, memfd(t, 4<<20), 0, rw)
	old := s.table.Load() // a reader looked here and was then held up
	if err := s.Unmap(0, 4<<20); err != nil {
		t.Fatal(err)
	}
	w := old.find(0x3000)
	if w.pin(0x3000) != nil || w.pinned() {
		t.Fatal("pinned a window that Unmap has declared free")
	}
}

func TestUnmapGivesUpButKeepsTheMemoryOfAStuckPin(t *testing.T) {
	fd := memfd(t, 4<<20)
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{DrainTimeout: 4 * time.Second})
		mustMap(t, s, 0, 4096, fd, 0, rw)
		mustMap(t, s, 4096, 4096, fd, 4096, rw)
		v, err := s.Pin(4096, 16, rw)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		wantReason(t, s.Unmap(0, 8192), InUse)
		if d := time.Since(began); d != 4*time.Second {
			t.Fatalf("gave up after %v", d)
		}
		s.UnmapAll()
		if st := s.Stats(); st.Windows != 0 || st.Files != 1 || st.DrainTimeouts != 1 {
			t.Fatalf("%+v", st)
		}
		if err := v.CopyIn([]byte("late"), 0); err != nil { // still memory-safe
			t.Fatal(err)
		}
		v.Release()
		synctest.Wait()
		s.UnmapAll()
		if st := s.Stats(); st.Files != 0 {
			t.Fatalf("the last release did not let go of the file: %+v", st)
		}
	})
}

// TestUnmapUnderFire proves that after Unmap returns nobody writes through the
// window: the unmapper then hands the memory to another owner and checks it.
func TestUnmapUnderFire(t *testing.T) {
	const size = 4 << 20
	s := newSpace(t, Options{})
	fd := memfd(t, size)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			buf := make([]byte, 1<<16)
			for i := range buf {
				buf[i] = 0xee
			}
			for !stop.Load() {
				at := r.Uint64N(size - uint64(len(buf)))
				switch r.IntN(4) {
				case 0:
					_ = s.WriteAt(buf, at)
				case 1:
					_, _ = s.AddUint64(at&^7, 1)
				case 2:
					if v, err := s.Pin(at, uint64(len(buf)), rw); err == nil {
						_ = v.CopyIn(buf, 0)
						v.Release()
					}
				case 3:
					_ = s.ReadAt(make([]byte, 4096), at)
				}
			}
		})
	}
	quiet := make([]byte, size)
	for round := range 25 {
		for off := uint64(0); off < size; off += size / 4 {
			mustMap(t, s, off, size/4, fd, off, rw)
		}
		time.Sleep(200 * time.Microsecond)
		if err := s.Unmap(0, size); err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(quiet, uint64(round))
		pwriteAll(t, fd, quiet)
		time.Sleep(200 * time.Microsecond)
		got := pread(t, fd, 0, size)
		if !bytes.Equal(got, quiet) {
			t.Fatalf("round %d: memory changed after Unmap", round)
		}
	}
	stop.Store(true)
	wg.Wait()
}

func TestAtomicsFromManyGoroutinesLoseNothing(t *testing.T) {
	s := newSpace(t, Options{})
	mustMap(t, s, 0, 4096, memfd(t, 4096), 0, rw)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				if _, err := s.AddUint64(64, 1); err != nil {
					t.Error(err)
				}
				for {
					old, err := s.LoadUint64(128)
					if err != nil {
						t.Error(err)
					}
					if prev, _ := s.CompareAndSwapUint64(128, old, old+3); prev == old {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	a, _ := s.LoadUint64(64)
	b, _ := s.LoadUint64(128)
	if a != 20000 || b != 60000 {
		t.Fatalf("%d, %d; want 20000, 60000", a, b)
	}
}
