// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"math"
	"runtime/debug"
	"sync"
)

// View is a pinned range of guest memory. It stays valid until Release; an
// Unmap of its windows waits for that. Hold it briefly, or release it from
// the server's DMAUnmapping callback. A View must not be copied after its
// first use by a second owner: Release works once per Pin.
type View struct {
	s    *Space
	iova uint64
	n    int
	seg  []byte    // the only segment, if runs is nil
	w    *window   // pinned window of seg
	pin  *pinShard // pin on w
	runs *runs     // segments and pins of a view over several windows
}

// runs holds what does not fit into a View. It is pooled, so that a view over
// several windows allocates nothing in the steady state.
type runs struct {
	segs [][]byte
	pins []heldPin
}

type heldPin struct {
	w   *window
	pin *pinShard
}

var runsPool = sync.Pool{New: func() any { return new(runs) }}

// Pin makes [iova, iova+n) usable without a copy. The range may span windows;
// host-contiguous windows join into one segment. n may be 0: the View is
// empty then. Pin allocates nothing for one window. Memory behind Segment may
// change at any time and may fault; read it through CopyOut, CopyIn or Guard.
func (s *Space) Pin(iova, n uint64, acc Access) (View, error) {
	return s.pin("pin", iova, n, acc)
}

func (s *Space) pin(op string, iova, n uint64, acc Access) (View, error) {
	if n == 0 {
		return View{s: s, iova: iova}, nil
	}
	last, err := lastOf(op, iova, n)
	if err != nil {
		return View{}, s.count(err)
	}
	if n > math.MaxInt {
		return View{}, s.count(fail(op, iova, n, NotMapped)) // no window is that large
	}
	w, pin := s.enter(iova)
	if w == nil {
		return View{}, s.count(fail(op, iova, n, NotMapped))
	}
	if err := w.allowed(op, iova, n, acc); err != nil {
		w.unpin(pin)
		return View{}, s.count(err)
	}
	if last <= w.last {
		return View{s: s, iova: iova, n: int(n), seg: w.slice(iova, n), w: w, pin: pin}, nil
	}
	v := View{s: s, iova: iova, n: int(n), runs: runsPool.Get().(*runs)}
	for at := iova; ; {
		end := min(w.last, last)
		v.runs.add(w, pin, w.slice(at, end-at+1))
		if end == last {
			return v, nil
		}
		at = end + 1
		if w, pin = s.enter(at); w == nil {
			err = fail(op, at, last-at+1, NotMapped)
		} else if err = w.allowed(op, at, last-at+1, acc); err != nil {
			w.unpin(pin)
		}
		if err != nil {
			v.Release()
			return View{}, s.count(err)
		}
	}
}

func (r *runs) add(w *window, pin *pinShard, b []byte) {
	r.pins = append(r.pins, heldPin{w, pin})
	if k := len(r.segs) - 1; k >= 0 {
		if j, ok := joined(r.segs[k], b); ok {
			r.segs[k] = j
			return
		}
	}
	r.segs = append(r.segs, b)
}

// Len returns the number of bytes.
func (v *View) Len() int { return v.n }

// Segments returns the number of host-contiguous pieces.
func (v *View) Segments() int {
	switch {
	case v.n == 0:
		return 0
	case v.runs == nil:
		return 1
	}
	return len(v.runs.segs)
}

// Segment returns piece i. The slice is valid until Release.
func (v *View) Segment(i int) []byte {
	if v.runs == nil && i == 0 && v.n > 0 {
		return v.seg
	}
	return v.runs.segs[i]
}

// Release ends the use of the memory. Releasing twice through the same
// variable is harmless.
func (v *View) Release() {
	if v.pin != nil {
		v.w.unpin(v.pin)
	}
	if r := v.runs; r != nil {
		for _, h := range r.pins {
			h.w.unpin(h.pin)
		}
		clear(r.pins)
		clear(r.segs)
		r.pins, r.segs = r.pins[:0], r.segs[:0]
		runsPool.Put(r)
	}
	*v = View{}
}

// CopyOut copies len(dst) bytes from offset off of the view into dst.
func (v *View) CopyOut(dst []byte, off int) error {
	return v.copy("read", dst, off, false)
}

// CopyIn copies src into the view at offset off. The View must have been
// pinned for Write.
func (v *View) CopyIn(src []byte, off int) error {
	return v.copy("write", src, off, true)
}

func (v *View) copy(op string, p []byte, off int, in bool) error {
	if len(p) == 0 && off >= 0 && off <= v.n {
		return nil
	}
	if off < 0 || off > v.n || len(p) > v.n-off {
		return v.count(fail(op, v.iova, uint64(len(p)), OutOfView))
	}
	at := v.iova + uint64(off)
	for i := 0; len(p) > 0; i++ {
		g := v.Segment(i)
		if off >= len(g) {
			off -= len(g)
			continue
		}
		g = g[off:min(len(g), off+len(p))]
		off = 0
		var ok bool
		if in {
			ok = guardedCopy(g, p[:len(g)], g)
		} else {
			ok = guardedCopy(p[:len(g)], g, g)
		}
		if !ok {
			return v.count(fail(op, at, uint64(len(g)), Fault))
		}
		at += uint64(len(g))
		p = p[len(g):]
	}
	return nil
}

// Guard calls f, which may use the segments freely, and turns a memory fault
// in them into an *Error. Other panics pass through.
func (v *View) Guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		r := recover()
		debug.SetPanicOnFault(old)
		if r == nil {
			return
		}
		if !v.holds(r) {
			panic(r)
		}
		err = v.count(fail("access", v.iova, uint64(v.n), Fault))
	}()
	return f()
}

// holds reports whether r is a fault inside one of the segments.
func (v *View) holds(r any) bool {
	for i := range v.Segments() {
		if isFaultIn(r, v.Segment(i)) {
			return true
		}
	}
	return false
}

func (v *View) count(err error) error {
	if v.s == nil {
		return err
	}
	return v.s.count(err)
}
