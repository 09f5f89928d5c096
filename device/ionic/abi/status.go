// SPDX-License-Identifier: Apache-2.0

package abi

import "strconv"

// Status is byte 0 of a completion (enum ionic_status_code).
type Status uint8

// Status codes, with the errno the driver turns them into.
const (
	StatusOK       Status = 0
	StatusEVersion Status = 1  // -EINVAL
	StatusEOpcode  Status = 2  // -EIO
	StatusEIO      Status = 3  // -EIO
	StatusEPerm    Status = 4  // -EPERM
	StatusEQID     Status = 5  // -EINVAL
	StatusEQType   Status = 6  // -EINVAL
	StatusENoEnt   Status = 7  // -ENOENT
	StatusEIntr    Status = 8  // -EIO
	StatusEAgain   Status = 9  // -EAGAIN; on a device command the driver retries once a second
	StatusENoMem   Status = 10 // -ENOMEM
	StatusEFault   Status = 11 // -EFAULT
	StatusEBusy    Status = 12 // -EBUSY
	StatusEExist   Status = 13 // -EEXIST
	StatusEInval   Status = 14 // -EINVAL
	StatusENoSpc   Status = 15 // -ENOSPC
	StatusERange   Status = 16 // -ERANGE
	StatusBadAddr  Status = 17 // -EFAULT
	StatusDevCmd   Status = 18 // -EIO; a device-command-only opcode came on the admin queue
	StatusENoSupp  Status = 19 // -EOPNOTSUPP
	StatusError    Status = 29 // -EIO
	StatusERDMA    Status = 30 // -EIO
	StatusEVFID    Status = 31 // -EIO
	StatusEBadFW   Status = 32 // -EIO
)

var statusNames = map[Status]string{
	StatusOK: "SUCCESS", StatusEVersion: "EVERSION", StatusEOpcode: "EOPCODE", StatusEIO: "EIO",
	StatusEPerm: "EPERM", StatusEQID: "EQID", StatusEQType: "EQTYPE", StatusENoEnt: "ENOENT",
	StatusEIntr: "EINTR", StatusEAgain: "EAGAIN", StatusENoMem: "ENOMEM", StatusEFault: "EFAULT",
	StatusEBusy: "EBUSY", StatusEExist: "EEXIST", StatusEInval: "EINVAL", StatusENoSpc: "ENOSPC",
	StatusERange: "ERANGE", StatusBadAddr: "BAD_ADDR", StatusDevCmd: "DEV_CMD", StatusENoSupp: "ENOSUPP",
	StatusError: "ERROR", StatusERDMA: "ERDMA", StatusEVFID: "EVFID", StatusEBadFW: "EBAD_FW",
}

// String returns the name in ionic_if.h without its prefix.
func (s Status) String() string {
	if n, ok := statusNames[s]; ok {
		return n
	}
	return "status " + strconv.Itoa(int(s))
}
