// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"runtime"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/guestmem"
)

// Options configures a Server. Zero fields take the default named.
type Options struct {
	// Mem is the guest memory the clients' windows go to. Default: a new one
	// made with Memory. It is emptied when a client leaves.
	Mem    *guestmem.Space
	Memory guestmem.Options

	// SpinTries is how often the session tries to receive before it parks, so
	// that a request that follows soon finds it awake. It does so as long as
	// requests do follow soon. Default 50 (about 60 us), or 1 where the Go
	// scheduler has one processor; negative: park at once.
	SpinTries int
	// PollFor is how long the session polls the socket after the last message
	// before it parks, on top of SpinTries. It burns a CPU. Default 0.
	PollFor time.Duration

	HandshakeTimeout time.Duration // from accept to a complete VERSION; default 10 s
	WriteTimeout     time.Duration // for a client that does not read; default 10 s
	DMATimeout       time.Duration // for the reply to a DMA message; default 5 s

	// StrictUnmap makes DMA_UNMAP of a range that is not exactly one window
	// fail with ENOENT. Hypervisors unmap what they never mapped; keep it off.
	StrictUnmap bool
	// AllowUIDs, if not empty, lists the users whose processes may connect.
	AllowUIDs []uint32

	Logger zerolog.Logger // events of a session's life; default silent
	Trace  Tracer         // sees every message; default none
}

const defaultSpinTries = 50

func (o Options) withDefaults() Options {
	if o.SpinTries == 0 {
		o.SpinTries = defaultSpinTries
		if runtime.GOMAXPROCS(0) == 1 {
			o.SpinTries = 1
		}
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = 10 * time.Second
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.DMATimeout <= 0 {
		o.DMATimeout = 5 * time.Second
	}
	return o
}
