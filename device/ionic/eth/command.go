// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"errors"
	"fmt"

	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// path is the way a command came.
type path uint8

const (
	devcmd path = iota
	adminq
)

func (p path) String() string {
	if p == devcmd {
		return "devcmd"
	}
	return "adminq"
}

// request is one command under way.
type request struct {
	cmd  *abi.Command
	comp *abi.Completion
	data []byte // devcmd: the 1912-byte window, side data in and answer out
	path path
}

// answer clears the data window and returns it.
func (r *request) answer() []byte {
	clear(r.data)
	return r.data
}

// refusal is the error of a command that the guest got wrong.
type refusal struct {
	status abi.Status
	text   string
}

func (e *refusal) Error() string { return e.text + " (" + e.status.String() + ")" }

func refuse(s abi.Status, format string, args ...any) error {
	return &refusal{status: s, text: fmt.Sprintf(format, args...)}
}

// command describes how an opcode is served.
type command struct {
	run    func(*LIF, *request) error
	devcmd bool // only by device command
	quiet  bool // a refusal is ordinary and not logged
}

// commands is indexed by opcode; an entry without run is unknown.
var commands [256]command

func init() {
	unsupported := command{run: (*LIF).cmdUnsupported}
	for op, c := range map[abi.Opcode]command{
		abi.OpNop:          {run: (*LIF).cmdNop},
		abi.OpIdentify:     {run: (*LIF).cmdIdentify, devcmd: true},
		abi.OpInit:         {run: (*LIF).cmdNop, devcmd: true},
		abi.OpReset:        {run: (*LIF).cmdReset, devcmd: true},
		abi.OpPortIdentify: {run: (*LIF).cmdPortIdentify, devcmd: true},
		abi.OpPortInit:     {run: (*LIF).cmdPortInit, devcmd: true},
		abi.OpPortReset:    {run: (*LIF).cmdPortReset, devcmd: true},
		abi.OpPortSetAttr:  {run: (*LIF).cmdPortSetAttr, devcmd: true},
		abi.OpLIFIdentify:  {run: (*LIF).cmdLIFIdentify, devcmd: true},
		abi.OpLIFInit:      {run: (*LIF).cmdLIFInit, devcmd: true},
		abi.OpLIFReset:     {run: (*LIF).cmdLIFReset, devcmd: true},
		abi.OpLIFGetAttr:   {run: (*LIF).cmdLIFGetAttr},
		abi.OpLIFSetAttr:   {run: (*LIF).cmdLIFSetAttr},
		abi.OpRxModeSet:    {run: (*LIF).cmdRxModeSet},
		abi.OpRxFilterAdd:  {run: (*LIF).cmdRxFilterAdd, quiet: true},
		abi.OpRxFilterDel:  {run: (*LIF).cmdRxFilterDel, quiet: true},
		abi.OpQIdentify:    {run: (*LIF).cmdQIdentify, devcmd: true},
		abi.OpQInit:        {run: (*LIF).cmdQInit},
		abi.OpQControl:     {run: (*LIF).cmdQControl},

		abi.OpRDMAResetLIF:     {run: (*LIF).cmdRDMA},
		abi.OpRDMACreateEQ:     {run: (*LIF).cmdRDMA},
		abi.OpRDMACreateCQ:     {run: (*LIF).cmdRDMA},
		abi.OpRDMACreateAdminQ: {run: (*LIF).cmdRDMA},

		abi.OpGetAttr: unsupported, abi.OpSetAttr: unsupported, abi.OpPortGetAttr: unsupported,
		abi.OpLIFSetPHC: unsupported,
		abi.OpVFGetAttr: unsupported, abi.OpVFSetAttr: unsupported, abi.OpVFCtrl: unsupported,
		abi.OpDiscoverCMB:      unsupported,
		abi.OpQoSClassIdentify: unsupported, abi.OpQoSClassInit: unsupported,
		abi.OpQoSClassReset: unsupported, abi.OpQoSClassUpdate: unsupported,
		abi.OpQoSClearStats: unsupported, abi.OpQoSReset: unsupported,
		abi.OpFWDownload: unsupported, abi.OpFWControl: unsupported,
		abi.OpFWDownloadV1: unsupported, abi.OpFWControlV1: unsupported,
	} {
		commands[op] = c
	}
}

// DevCommand executes a command from the BAR0 registers. data is the whole side
// data window, which the command reads and may overwrite.
func (l *LIF) DevCommand(cmd *abi.Command, comp *abi.Completion, data []byte) {
	l.ctl.Lock()
	defer l.ctl.Unlock()
	l.exec(&request{cmd: cmd, comp: comp, data: data, path: devcmd})
}

// exec runs one command and fills its completion but for index and colour.
// Holds ctl.
func (l *LIF) exec(r *request) {
	*r.comp = abi.Completion{}
	op := r.cmd.Opcode()
	c := &commands[op]
	var err error
	switch {
	case c.run == nil:
		err = refuse(abi.StatusEOpcode, "unknown opcode")
	case c.devcmd && r.path == adminq:
		err = refuse(abi.StatusDevCmd, "may only come as a device command")
	default:
		err = c.run(l, r)
	}
	if err == nil {
		return
	}
	status := abi.StatusEIO
	var e *refusal
	if errors.As(err, &e) {
		status = e.status
	}
	l.count.refused.Add(1)
	r.comp.SetStatus(status)
	if !c.quiet {
		l.log.Warn().Str("side", "guest").Stringer("command", op).Stringer("path", r.path).
			Stringer("status", status).Msg(err.Error())
	}
}

func (l *LIF) cmdNop(*request) error { return nil }

func (l *LIF) cmdUnsupported(r *request) error {
	return refuse(abi.StatusENoSupp, "the device does not support %v", r.cmd.Opcode())
}

func (l *LIF) cmdReset(*request) error {
	l.deviceReset()
	return nil
}

func (l *LIF) cmdRDMA(r *request) error {
	if l.cfg.RDMA == nil {
		return refuse(abi.StatusENoSupp, "the device has no RDMA capability")
	}
	if err := l.needLIF(r); err != nil {
		return err
	}
	s := abi.Status(l.cfg.RDMA.Command((*[abi.CommandSize]byte)(r.cmd), (*[abi.CompletionSize]byte)(r.comp)))
	if s != abi.StatusOK {
		return refuse(s, "the RDMA half refused the command")
	}
	return nil
}

// needLIF checks the LIF index at byte 2 and that the LIF is initialised.
func (l *LIF) needLIF(r *request) error {
	if err := l.needIndex(r); err != nil {
		return err
	}
	if !l.ctl.inited {
		return refuse(abi.StatusEPerm, "the LIF is not initialised")
	}
	return nil
}

func (l *LIF) needIndex(r *request) error {
	if i := r.cmd.LIFIndex(); i != 0 {
		return refuse(abi.StatusEInval, "there is no LIF %d", i)
	}
	return nil
}

// needDMA checks that the device may reach guest memory.
func (l *LIF) needDMA() error {
	switch {
	case l.ctl.mem == nil:
		return refuse(abi.StatusEFault, "no guest memory is attached")
	case !l.ctl.busMaster:
		return refuse(abi.StatusEFault, "bus mastering is off")
	}
	return nil
}
