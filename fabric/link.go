// SPDX-License-Identifier: Apache-2.0

package fabric

import "fmt"

// Verdict is the answer of Link.Send.
type Verdict uint8

// Verdicts.
const (
	// Sent means that the link took the frame over.
	Sent Verdict = iota
	// Full means that the caller keeps the frame: there is no room now.
	// Receiver.Writable follows when there is.
	Full
	// NoRoute means that no such node is known. The Owner has been released.
	NoRoute
	// Dropped means that the frame is lost and counted: a lossy class without
	// room, a frame outside the limits, a closed link. The Owner has been
	// released.
	Dropped
)

var verdictNames = [...]string{"sent", "full", "no-route", "dropped"}

// String names the verdict in lower case.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Link carries frames to other nodes.
type Link interface {
	// Send hands a frame to the link. It never blocks, copies *f, does not keep
	// it and does not change it. Any goroutine may call it, also from within
	// Receiver methods. Send itself never calls the Receiver; it may release
	// the Owner before it returns.
	Send(f *Frame) Verdict
	// Close stops the link: no Receiver method is running or called after it
	// returns. It must not be called from a Receiver method.
	Close() error
}

// Receiver is the upper side of a link. Its methods are called on the link's
// goroutines, several at a time, without any lock of the link held; they must
// not block and may call Send.
type Receiver interface {
	// Receive delivers a frame, in order within (Src, Flow). *f is valid during
	// the call only. The receiver takes over f.Owner, which may be nil, and
	// with it the duty to release it exactly once.
	Receive(f *Frame)
	// Writable says that flows of the group have room again towards dst. It
	// follows a Full; a spurious call is possible.
	Writable(dst uint32, group uint8)
}
