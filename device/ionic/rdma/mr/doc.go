// SPDX-License-Identifier: Apache-2.0

// Package mr keeps the memory regions and memory windows of a device and is
// the one place that decides whether an access to guest memory is allowed.
//
//	CREATE_MR (user)     +-------+  DESTROY_MR
//	-------------------->| valid |------------------------------> gone
//	                     +-------+
//	                       ^   |                                   ^
//	         REG_MR, BIND_MW   | LOCAL_INV, SEND_INV, unbind       | DESTROY_MR
//	                       |   v                                   |
//	CREATE_MR            +---------+                               |
//	(fast register, MW)->| invalid |-------------------------------+
//	                     +---------+
//
// A key is index << 8 | key byte. The index finds the entry, the byte must be
// the entry's current one.
//
// # Tear-down
//
// The guest reuses memory as soon as a DESTROY_MR or an invalidation has
// completed. Every access therefore takes a use of the entry, an atomic count,
// for as long as it copies; whoever invalidates first lets nobody new in and
// then waits until the count is down. Taking a use never waits, so an access
// through a window may take two, and a list of elements one for each.
package mr

import "github.com/ernic-dev/ernic/device/ionic/rdma/abi"

// Fault is why an access or an operation was refused. The zero value is no
// fault.
type Fault uint8

// Faults.
const (
	OK            Fault = iota
	UnknownKey          // no such index, or not the current key byte
	Invalid             // entry exists but has no memory now
	WrongPD             // protection domain differs from the QP's
	WrongQP             // type 2 window bound by another QP
	OutOfRange          // not inside the region or window
	NoRight             // the region, window or QP lacks the right
	NotPrivileged       // key 0 from a QP that may not use it
	WrongKind           // the operation does not fit the kind of entry
	WrongState          // REG_MR or BIND_MW of an entry that is in use
	BadPages            // page list unreadable or too short
	BadMemory           // guest memory is not there

	// NumFaults is the number of faults, OK included.
	NumFaults
)

var faultNames = [NumFaults]struct{ name, text string }{
	OK:            {"none", "allowed"},
	UnknownKey:    {"unknown_key", "unknown key"},
	Invalid:       {"invalid_key", "key not valid now"},
	WrongPD:       {"wrong_pd", "wrong protection domain"},
	WrongQP:       {"wrong_qp", "window of another queue pair"},
	OutOfRange:    {"out_of_range", "out of range"},
	NoRight:       {"no_right", "access right missing"},
	NotPrivileged: {"not_privileged", "key 0 or REG_MR without privilege"},
	WrongKind:     {"wrong_kind", "wrong kind of memory object"},
	WrongState:    {"wrong_state", "memory object in use"},
	BadPages:      {"bad_pages", "bad page list"},
	BadMemory:     {"bad_memory", "guest memory not accessible"},
}

func (f Fault) String() string {
	if f < NumFaults {
		return faultNames[f].text
	}
	return "unknown fault"
}

// Name is the short name of the fault, for counters.
func (f Fault) Name() string {
	if f < NumFaults {
		return faultNames[f].name
	}
	return "unknown"
}

// Right is what an access wants to do.
type Right uint8

// Rights.
const (
	LocalRead Right = iota
	LocalWrite
	RemoteWrite
	RemoteRead
	RemoteAtomic
)

// need is the MR flag and the QP flag a right asks for.
var need = [...]struct{ mr, qp uint16 }{
	LocalRead:    {0, 0},
	LocalWrite:   {abi.MRLocalWrite, 0},
	RemoteWrite:  {abi.MRRemoteWrite, abi.QPRemoteWrite},
	RemoteRead:   {abi.MRRemoteRead, abi.QPRemoteRead},
	RemoteAtomic: {abi.MRRemoteAtomic, abi.QPRemoteAtomic},
}

// Domain is who asks: the queue pair for whose work, or for whose peer, guest
// memory is accessed.
type Domain struct {
	QP    uint32
	PD    uint32
	Flags uint16 // QP flags: remote rights and the two privileges of key 0
}
