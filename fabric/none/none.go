// SPDX-License-Identifier: Apache-2.0

// Package none is the link of a worker without a fabric: it has no peers, not
// even the own node, and refuses every frame.
package none

import (
	"sync/atomic"

	"github.com/ernic-dev/ernic/fabric"
)

// Link refuses every frame with fabric.NoRoute. The zero value is ready.
type Link struct {
	refused atomic.Uint64
}

var _ fabric.Link = (*Link)(nil)

// New returns a link without peers.
func New() *Link { return new(Link) }

// Send releases the frame and counts it.
func (l *Link) Send(f *fabric.Frame) fabric.Verdict {
	l.refused.Add(1)
	f.Drop()
	return fabric.NoRoute
}

// Refused is the number of frames that found no route.
func (l *Link) Refused() uint64 { return l.refused.Load() }

// Close does nothing.
func (l *Link) Close() error { return nil }
