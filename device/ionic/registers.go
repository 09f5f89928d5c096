// SPDX-License-Identifier: Apache-2.0

package ionic

import (
	"encoding/binary"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/profile"
)

var le = binary.LittleEndian

// Pages of the register window.
const (
	cmdPage  = abi.RegCmdDoorbell
	cmdBytes = abi.RegCmdEnd - cmdPage
	cmdArea  = abi.RegCmd - cmdPage
	compArea = abi.RegCmdComp - cmdPage
	dataArea = abi.RegCmdData - cmdPage
	doneReg  = abi.RegCmdDone - cmdPage
	doneBit  = 1
)

// registers is BAR0. Its methods run on the goroutine that serves the guest.
type registers struct {
	nic   *NIC
	start time.Time
	info  [cmdPage]byte  // device info, constant but for the heartbeat
	cmd   [cmdBytes]byte // doorbell, done, command, completion, side data
}

func (r *registers) init(n *NIC, p *profile.Profile, serial string) {
	r.nic, r.start = n, time.Now()
	le.PutUint32(r.info[abi.RegSignature:], abi.Signature)
	r.info[abi.RegVersion] = abi.DevInfoVersion
	r.info[abi.RegAsicType] = byte(p.AsicType)
	r.info[abi.RegAsicRev] = p.AsicRev
	r.info[abi.RegFWStatus] = abi.FWStatusRunning
	copy(r.info[abi.RegFWVersion:abi.RegFWVersion+abi.FWVersionLen-1], p.FWVersion)
	copy(r.info[abi.RegSerial:abi.RegSerial+abi.SerialLen-1], serial)
}

// reset clears the command registers.
func (r *registers) reset() { clear(r.cmd[:]) }

// heartbeat counts seconds, so that it moves without a timer. It is never 0
// after the first second and the driver takes 0 as good.
func (r *registers) heartbeat() uint32 {
	return uint32(time.Since(r.start) / time.Second)
}

// ReadBAR implements [pci.Handler].
func (r *registers) ReadBAR(off uint64, p []byte) {
	switch {
	case off < cmdPage:
		if off < abi.RegFWHeartbeat+4 && off+uint64(len(p)) > abi.RegFWHeartbeat {
			le.PutUint32(r.info[abi.RegFWHeartbeat:], r.heartbeat())
		}
		copy(p, r.info[off:])
	case off < abi.RegCmdEnd:
		copy(p, r.cmd[off-cmdPage:])
	case off >= abi.RegIntrCtrl && off < abi.RegisterWindow:
		r.readIntr(off-abi.RegIntrCtrl, p)
	}
}

// readIntr serves 32-bit registers to an access of any width.
func (r *registers) readIntr(off uint64, p []byte) {
	for len(p) > 0 {
		var w [4]byte
		le.PutUint32(w[:], r.nic.bank.Read(off&^3))
		n := copy(p, w[off&3:])
		p, off = p[n:], off+uint64(n)
	}
}

// WriteBAR implements [pci.Handler].
func (r *registers) WriteBAR(off uint64, p []byte) {
	switch {
	case off < cmdPage:
	case off < abi.RegCmdEnd:
		r.writeCmd(off-cmdPage, p)
	case off >= abi.RegIntrCtrl && off < abi.RegisterWindow:
		off -= abi.RegIntrCtrl
		// The driver writes whole registers; anything else has no meaning here.
		for off%4 == 0 && len(p) >= 4 {
			r.nic.bank.Write(off, le.Uint32(p))
			p, off = p[4:], off+4
		}
	}
}

// writeCmd stores to the command registers and executes the command when the
// doorbell is written with a non-zero value. A doorbell of 0 is the driver's
// clean-up and must change nothing.
func (r *registers) writeCmd(off uint64, p []byte) {
	n := copy(r.cmd[off:], p)
	if off != 0 || n < 4 {
		return
	}
	if le.Uint32(r.cmd[:]) != 0 {
		r.execute()
	}
	clear(r.cmd[:4])
}

func (r *registers) execute() {
	cmd := abi.Command(r.cmd[cmdArea : cmdArea+abi.CommandSize])
	comp := (*abi.Completion)(r.cmd[compArea : compArea+abi.CompletionSize])
	r.nic.lif.DevCommand(&cmd, comp, r.cmd[dataArea:])
	r.cmd[doneReg] |= doneBit
}
