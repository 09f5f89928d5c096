// SPDX-License-Identifier: Apache-2.0

package verbs

import "fmt"

// Status is the status of a work completion: the device's code.
type Status uint32

// Status codes (enum ionic_status).
const (
	Success         Status = 0
	LocalLength     Status = 1
	LocalQPOp       Status = 2
	LocalProtection Status = 3
	Flushed         Status = 4
	MemoryMgmt      Status = 5
	BadResponse     Status = 6
	LocalAccess     Status = 7
	RemoteInvalid   Status = 8
	RemoteAccess    Status = 9
	RemoteOperation Status = 10
	RetryExceeded   Status = 11
	RNRExceeded     Status = 12
	XRCViolation    Status = 13
	LocalSGLInvalid Status = 14
)

var statusNames = [...]string{
	"success", "local length error", "local QP operation error", "local protection error", "flushed",
	"memory management error", "bad response", "local access error", "remote invalid request", "remote access error",
	"remote operation error", "retry exceeded", "RNR retry exceeded", "XRC violation", "local SGL invalid",
}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint32(s))
}

// Operation is what a work completion completes.
type Operation uint8

// Operations of completions.
const (
	WCSend Operation = iota
	WCWrite
	WCRead
	WCCompareSwap
	WCFetchAdd
	WCRegMR
	WCLocalInv
	WCBindMW
	WCRecv
	WCRecvWriteImm
)

// WC is a work completion.
type WC struct {
	ID     uint64
	QPN    uint32
	Status Status
	Op     Operation
	Len    uint32 // bytes; a datagram's includes the 40 bytes before it

	Imm    uint32 // in host order
	HasImm bool
	InvKey uint32
	HasInv bool
	SrcQPN uint32
	HasGRH bool // a datagram
	IPv4   bool // the 40 bytes hold an IPv4 header
	SrcMAC [6]byte
	Tagged bool
	VLAN   uint16
}
