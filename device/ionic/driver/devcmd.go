// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"time"
)

// Command opcodes (enum ionic_cmd_opcode).
const (
	opIdentify     = 1
	opInit         = 2
	opReset        = 3
	opPortIdentify = 10
	opPortInit     = 11
	opPortReset    = 12
	opPortSetAttr  = 14
	opLIFIdentify  = 20
	opLIFInit      = 21
	opLIFReset     = 22
	opLIFGetAttr   = 23
	opLIFSetAttr   = 24
	opRxModeSet    = 30
	opRxFilterAdd  = 31
	opRxFilterDel  = 32
	opQIdentify    = 39
	opQInit        = 40
	opQControl     = 41
)

// Command is a 64-byte device or admin queue command.
type Command [64]byte

// Completion is the 16-byte answer to a Command.
type Completion [16]byte

// Status returns the status code of the completion, 0 for success.
func (c *Completion) Status() uint8 { return c[0] }

// commandTimeout is how long the driver waits for a device or admin command.
const commandTimeout = 5 * time.Second

const statusEAGAIN = 9

var statusNames = map[uint8]string{
	1: "EVERSION", 2: "EOPCODE", 3: "EIO", 4: "EPERM", 5: "EQID", 6: "EQTYPE", 7: "ENOENT", 8: "EINTR",
	9: "EAGAIN", 10: "ENOMEM", 11: "EFAULT", 12: "EBUSY", 13: "EEXIST", 14: "EINVAL", 15: "ENOSPC", 16: "ERANGE",
	17: "BAD_ADDR", 18: "DEV_CMD", 19: "ENOSUPP", 29: "ERROR", 30: "ERDMA", 31: "EVFID", 32: "EBAD_FW",
}

// CommandError is a command that the device completed with an error status.
type CommandError struct {
	Path   string // "device command" or "admin command"
	Opcode uint8
	Status uint8
}

func (e *CommandError) Error() string {
	name := statusNames[e.Status]
	if name == "" {
		name = "unknown status"
	}
	return fmt.Sprintf("driver: %s %d failed: %s (%d)", e.Path, e.Opcode, name, e.Status)
}

// deviceCommand runs a command through the BAR0 registers. in is written to the
// data window before and out is read from it after; both may be nil. Lengths
// are multiples of 4. The registers are used in the order of
// ionic_dev_cmd_wait.
func (d *Device) deviceCommand(cmd *Command, in, out []byte) (Completion, error) {
	d.cmdLock.Lock()
	defer d.cmdLock.Unlock()
	var comp Completion
	if d.io.read8(regFWStatus)&1 == 0 && cmd[0] != opReset {
		return comp, d.gone("firmware is not running")
	}
	d.io.copyTo(regData, in)
	d.io.copyTo(regCmd, cmd[:])
	d.io.write32(regCmdDone, 0)
	d.io.write32(regCmdDoorbell, 1)
	deadline := time.Now().Add(d.Timeout(commandTimeout))
	for {
		if err := d.awaitDone(deadline); err != nil {
			return comp, err
		}
		status := d.io.read8(regComp)
		if status == statusEAGAIN && time.Until(deadline) > time.Second {
			d.io.write32(regCmdDone, 0)
			time.Sleep(time.Second)
			d.io.write32(regCmdDoorbell, 1)
			continue
		}
		if status != 0 {
			return comp, &CommandError{"device command", cmd[0], status}
		}
		break
	}
	d.cleanCommand()
	d.io.copyFrom(regComp, comp[:])
	d.io.copyFrom(regData, out)
	return comp, d.Err()
}

// awaitDone polls for the done bit.
func (d *Device) awaitDone(deadline time.Time) error {
	for d.io.read8(regFWStatus)&1 != 0 {
		if d.io.read32(regCmdDone)&1 != 0 {
			return d.Err()
		}
		if time.Now().After(deadline) {
			d.cleanCommand()
			return d.gone("device command was not done in %v", d.Timeout(commandTimeout))
		}
		time.Sleep(100 * time.Microsecond)
	}
	d.cleanCommand()
	return d.gone("firmware stopped during a device command")
}

// cleanCommand is memset_io of the command and an idle doorbell; the device
// must keep the completion and the data.
func (d *Device) cleanCommand() {
	d.io.write32(regCmdDoorbell, 0)
	for off := uint64(0); off < 64; off += 8 {
		d.io.write64(regCmd+off, 0)
	}
}
