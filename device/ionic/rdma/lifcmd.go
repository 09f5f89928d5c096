// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"fmt"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/cq"
	"github.com/ernic-dev/ernic/device/ionic/rdma/eq"
)

// Command executes an RDMA command of the LIF's admin queue (opcodes 50 to 53)
// and returns its status. comp is the completion; the commands have no answer
// beside the status, and the caller fills in the rest.
func (e *Engine) Command(cmd *[abi.LIFCommandLen]byte, comp *[16]byte) (status uint8) {
	e.control.Lock()
	defer e.control.Unlock()
	var c abi.QueueCommand
	c.Get(cmd[:])
	if c.Opcode == abi.CmdResetLIF && !e.closed {
		e.replace(e.current.Load().mem)
		return abi.CmdOK
	}
	status, err := e.create(&c)
	if err != nil {
		e.stats.commandErrors.Add(1)
		e.log.Warn().Err(err).Uint8("opcode", c.Opcode).Uint8("status", status).Msg("RDMA command of the guest failed")
	}
	return status
}

func (e *Engine) create(c *abi.QueueCommand) (uint8, error) {
	l := e.current.Load()
	if l.mem == nil {
		return abi.CmdEFault, fmt.Errorf("RDMA command %d: no guest memory is attached", c.Opcode)
	}
	if c.LIF != 0 {
		return abi.CmdEInval, fmt.Errorf("RDMA command %d: LIF %d does not exist", c.Opcode, c.LIF)
	}
	switch c.Opcode {
	case abi.CmdCreateEQ:
		return l.createEQ(c)
	case abi.CmdCreateCQ:
		return l.createControlCQ(c)
	case abi.CmdCreateAdminQ:
		return l.createAdminQueue(c)
	}
	return abi.CmdEOpcode, fmt.Errorf("RDMA command %d does not exist", c.Opcode)
}

func (l *lif) createEQ(c *abi.QueueCommand) (uint8, error) {
	switch {
	case c.ID >= uint32(len(l.eqs)):
		return abi.CmdEQID, fmt.Errorf("create event queue %d: there are %d", c.ID, len(l.eqs))
	case c.CID >= uint32(len(l.vectors)):
		return abi.CmdEInval, fmt.Errorf("create event queue %d: interrupt %d does not exist, there are %d", c.ID, c.CID, len(l.vectors))
	case c.StrideLog2 != abi.EQEStrideLog2:
		return abi.CmdEInval, fmt.Errorf("create event queue %d: entries of 2^%d bytes, want 2^%d", c.ID, c.StrideLog2, abi.EQEStrideLog2)
	case l.eqs[c.ID].Load() != nil:
		return abi.CmdEExist, fmt.Errorf("create event queue %d: exists", c.ID)
	case l.vectors[c.CID].Load() != nil:
		return abi.CmdEExist, fmt.Errorf("create event queue %d: interrupt %d has an event queue", c.ID, c.CID)
	}
	q, err := eq.New(eq.Config{
		ID: c.ID, Vector: int(c.CID), DepthLog2: c.DepthLog2, Base: c.DMA,
		Memory: l.mem, Interrupt: l.engine.config.Interrupts, Totals: &l.engine.stats.events,
	})
	if err != nil {
		return abi.CmdEInval, err
	}
	l.eqs[c.ID].Store(q)
	l.vectors[c.CID].Store(q)
	return abi.CmdOK, nil
}

// createControlCQ makes the CQ of an admin queue. It ends with the LIF.
func (l *lif) createControlCQ(c *abi.QueueCommand) (uint8, error) {
	err := l.newCQ(&abi.CreateCQ{
		EQ: c.CID, DepthLog2: c.DepthLog2, StrideLog2: c.StrideLog2, ID: c.ID,
		MapCount: 1, DMA: c.DMA, DBID: c.DBID,
	})
	if err == nil {
		return abi.CmdOK, nil
	}
	if l.cqs.Get(c.ID) != nil {
		return abi.CmdEExist, err
	}
	return abi.CmdEInval, err
}

// newCQ makes a CQ. Errors are *abi.Refusal.
func (l *lif) newCQ(c *abi.CreateCQ) error {
	if c.ID >= l.cqs.Limit() || l.cqs.Get(c.ID) != nil {
		return abi.Refuse(abi.AdminBadIndex, "completion queue %d: exists, or is not below %d", c.ID, l.cqs.Limit())
	}
	var events *eq.Queue
	if c.EQ < uint32(len(l.eqs)) {
		events = l.eqs[c.EQ].Load()
	}
	switch {
	case events == nil:
		return abi.Refuse(abi.AdminBadIndex, "completion queue %d: event queue %d does not exist", c.ID, c.EQ)
	case c.StrideLog2 != abi.CQEStrideLog2 || c.DepthLog2 > 16:
		return abi.Refuse(abi.AdminBadAttr, "completion queue %d: 2^%d entries of 2^%d bytes", c.ID, c.DepthLog2, c.StrideLog2)
	}
	config := cq.Config{
		ID: c.ID, DBID: c.DBID, DepthLog2: c.DepthLog2, Memory: l.mem, Events: events, Room: &l.room,
		Totals: &l.engine.stats.completions,
	}
	if err := config.Ring.Load(l.mem, l.budget, c.MapCount, c.DMA, c.PageSizeLog2, abi.CQELen<<c.DepthLog2); err != nil {
		config.Ring.Free(l.budget)
		return abi.Refuse(abi.AdminBadAttr, "completion queue %d: %v", c.ID, err)
	}
	config.Ring.Trim(l.budget)
	q := new(completionQueue)
	q.actor.Init(l.engine.sched, q, c.ID, false)
	config.Drain = q.actor.Schedule
	var err error
	if q.Queue, err = cq.New(config); err != nil {
		config.Ring.Free(l.budget)
		return abi.Refuse(abi.AdminBadAttr, "%v", err)
	}
	if !l.cqs.Add(c.ID, q) {
		config.Ring.Free(l.budget)
		return abi.Refuse(abi.AdminBadIndex, "completion queue %d: exists", c.ID)
	}
	return nil
}

func (l *lif) createAdminQueue(c *abi.QueueCommand) (uint8, error) {
	switch {
	case c.ID >= uint32(len(l.aqs)):
		return abi.CmdEQID, fmt.Errorf("create RDMA admin queue %d: there are %d", c.ID, len(l.aqs))
	case l.aqs[c.ID].Load() != nil:
		return abi.CmdEExist, fmt.Errorf("create RDMA admin queue %d: exists", c.ID)
	case c.StrideLog2 != abi.AdminStrideLog2 || c.DepthLog2 < 1 || c.DepthLog2 > 16:
		return abi.CmdEInval, fmt.Errorf("create RDMA admin queue %d: 2^%d entries of 2^%d bytes", c.ID, c.DepthLog2, c.StrideLog2)
	}
	completions := l.cqs.Get(c.CID)
	if completions == nil {
		return abi.CmdEInval, fmt.Errorf("create RDMA admin queue %d: completion queue %d does not exist", c.ID, c.CID)
	}
	if err := l.mem.Check(c.DMA, abi.AdminStride<<c.DepthLog2, guestmem.Read); err != nil {
		return abi.CmdEInval, fmt.Errorf("create RDMA admin queue %d: %w", c.ID, err)
	}
	completions.Use()
	l.aqs[c.ID].Store(startAdminQueue(l, c, completions))
	return abi.CmdOK, nil
}
