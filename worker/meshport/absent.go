// SPDX-License-Identifier: Apache-2.0

package meshport

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/fabric"
)

// absence is for how long a node that said it has no LIF on the mesh gets no frames
// for everybody. With the next one it says so again.
const absence = 60 * time.Second

// absentRate bounds how often a node says it, to all peers together: a peer that is
// told once a minute needs no more.
const absentRate = 256

// Absent is the place in the switch of a worker whose LIF is not on the mesh. The
// zero value is ready for use, by any number of goroutines.
type Absent struct {
	Frames atomic.Uint64 // frames that arrived

	said  bucket
	first sync.Once
	born  time.Time // valid after first
}

var noLIF = func() (b [headerLen]byte) {
	b[0], b[1] = version, flagNoLIF
	return b
}()

// Deliver counts a frame of class Ethernet, releases it, and tells the node it came
// from that there is nobody here.
func (a *Absent) Deliver(f *fabric.Frame, link fabric.Link) {
	a.Frames.Add(1)
	a.first.Do(func() { a.born = time.Now() })
	from, saysSo := f.Src, isNoLIF(f.Header)
	f.Release()
	if saysSo || link == nil || !a.said.take(int64(time.Since(a.born)), absentRate, absentRate) {
		return
	}
	_ = link.Send(&fabric.Frame{Dst: from, Class: fabric.Ethernet, Header: noLIF[:]})
}

func isNoLIF(header []byte) bool { return string(header) == string(noLIF[:]) }

// notes says that a node has, or has not, a LIF on the mesh.
func (s *source) notes(present bool, ns int64) {
	switch until := s.absent.Load(); {
	case !present:
		s.absent.Store(ns + int64(absence))
	case until != 0:
		s.absent.Store(0)
	}
}
