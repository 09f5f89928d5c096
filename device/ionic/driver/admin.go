// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"sync"
	"time"
)

// The admin ring has 16 commands of 64 bytes, its completion ring 16 of 16 bytes.
const (
	adminDepth = 16
	adminLog2  = 4
	compSize   = 16
)

// qInit flags.
const (
	qFlagIRQ = 0x01
	qFlagENA = 0x02
	qFlagSG  = 0x04
)

// adminQueue is the LIF's admin queue.
type adminQueue struct {
	intr       *Intr
	ring, comp DMA
	hwIndex    uint32
	hwType     uint8

	mu       sync.Mutex // guards what follows
	room     room       // for posters while all slots are taken
	head     int        // next slot to fill
	tail     int        // oldest slot without completion
	compHead int
	colour   uint8
	waiters  [adminDepth]*adminWait
	ready    bool
}

type adminWait struct {
	comp Completion
	done chan struct{}
}

// queueInit fills a Q_INIT command.
func (d *Device) queueInit(queueType uint8, index uint32, intr int, flags uint16, log2 uint8, ring, comp, sg uint64) *Command {
	cmd := &Command{opQInit}
	cmd[4] = queueType
	cmd[5] = d.queues[queueType].version
	le.PutUint32(cmd[8:], index)
	le.PutUint16(cmd[14:], uint16(intr))
	le.PutUint16(cmd[16:], flags)
	cmd[19] = log2
	le.PutUint64(cmd[20:], ring)
	le.PutUint64(cmd[28:], comp)
	le.PutUint64(cmd[36:], sg)
	return cmd
}

func (d *Device) initAdmin(intr *Intr) (err error) {
	q := &d.admin
	q.intr, q.colour = intr, 1
	if q.ring, err = d.mem.Alloc(adminDepth * 64); err != nil {
		return err
	}
	if q.comp, err = d.mem.Alloc(adminDepth * compSize); err != nil {
		return err
	}
	cmd := d.queueInit(queueAdmin, 0, intr.Index, qFlagIRQ|qFlagENA, adminLog2, q.ring.IOVA, q.comp.IOVA, 0)
	comp, err := d.deviceCommand(cmd, nil, nil)
	if err != nil {
		return err
	}
	q.hwIndex, q.hwType = le.Uint32(comp[4:]), comp[8]
	q.mu.Lock()
	q.ready = true
	q.mu.Unlock()
	intr.Unmask()
	return nil
}

// stopAdmin frees the admin and notify queues, of which an interrupt that is
// under way must read nothing any more.
func (d *Device) stopAdmin() {
	d.notify.mu.Lock()
	d.notify.ready = false
	d.notify.mu.Unlock()
	d.admin.mu.Lock()
	d.admin.ready = false
	d.admin.mu.Unlock()
	d.mem.Free(d.notify.ring)
	d.mem.Free(d.admin.ring)
	d.mem.Free(d.admin.comp)
}

// Admin posts a command to the admin queue and waits for its completion, which
// only the interrupt brings.
func (d *Device) Admin(cmd *Command) (Completion, error) {
	q := &d.admin
	q.mu.Lock()
	for (q.head+1)%adminDepth == q.tail && d.Err() == nil {
		q.room.await(&q.mu, d.Failed())
	}
	if err := d.Err(); err != nil {
		q.mu.Unlock()
		return Completion{}, err
	}
	w := &adminWait{done: make(chan struct{})}
	q.waiters[q.head] = w
	copy(q.ring.Bytes()[q.head*64:], cmd[:])
	q.head = (q.head + 1) % adminDepth
	d.io.ring(d.hwIndex*d.DoorbellPages(), q.hwType, uint64(q.hwIndex)<<24|uint64(q.head))
	q.mu.Unlock()

	timer := time.NewTimer(d.Timeout(commandTimeout))
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		return Completion{}, d.gone("admin command %d was not completed in %v", cmd[0], d.Timeout(commandTimeout))
	case <-d.Failed():
		return Completion{}, d.Err()
	}
	if s := w.comp.Status(); s != 0 {
		return w.comp, &CommandError{"admin command", cmd[0], s}
	}
	return w.comp, nil
}

// serviceAdmin is the handler of the admin vector: the notify queue first, then
// the admin queue, as in ionic_adminq_napi.
func (d *Device) serviceAdmin() {
	n := d.serviceNotify()
	n += d.serviceCompletions()
	d.admin.intr.ReturnCredits(n, CreditUnmask|CreditResetCoalesce)
}

func (d *Device) serviceCompletions() (n int) {
	q := &d.admin
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.ready {
		at := q.compHead * compSize
		if uint8(q.comp.Load64(at+8)>>63) != q.colour {
			return n
		}
		var comp Completion
		copy(comp[:], q.comp.Bytes()[at:])
		index := int(le.Uint16(comp[2:]))
		if index != q.tail || q.tail == q.head {
			d.fault("admin completion %d names slot %d, the oldest posted is %d: the kernel would retire the wrong commands or loop for ever",
				q.compHead, index, q.tail)
			return n
		}
		q.waiters[index].comp = comp
		close(q.waiters[index].done)
		q.tail = (q.tail + 1) % adminDepth
		if q.compHead = (q.compHead + 1) % adminDepth; q.compHead == 0 {
			q.colour ^= 1
		}
		q.room.wake()
		n++
	}
	return n
}

// notifyQueue is the LIF's notify queue: 64 descriptors that are never used,
// and 64 events of 64 bytes a page after them.
type notifyQueue struct {
	ring DMA

	mu      sync.Mutex // guards what follows
	ready   bool
	lastEID uint64
	events  []Event
	changed chan struct{} // closed and replaced at each event
}

const (
	notifyDepth = 64
	notifyLog2  = 6
	eventSize   = 64
)

// Event is one event of the notify queue.
type Event struct {
	EID  uint64
	Code uint16 // 1 link change, 2 reset
}

func (d *Device) initNotify() (err error) {
	q := &d.notify
	q.changed = make(chan struct{})
	if d.sizes.NotifyQs == 0 {
		return nil
	}
	if q.ring, err = d.mem.Alloc(PageSize + notifyDepth*eventSize); err != nil {
		return err
	}
	cmd := d.queueInit(queueNotify, 0, d.admin.intr.Index, qFlagIRQ|qFlagENA, notifyLog2, q.ring.IOVA, 0, 0)
	if _, err := d.Admin(cmd); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready = true
	return nil
}

// serviceNotify takes new events by the driver's rule: the next slot holds a
// new event if its id is above the last one.
func (d *Device) serviceNotify() (n int) {
	q := &d.notify
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.ready {
		at := PageSize + int(q.lastEID%notifyDepth)*eventSize
		eid := q.ring.Load64(at)
		if int64(eid-q.lastEID) <= 0 {
			return n
		}
		if eid != q.lastEID+1 {
			d.fault("event id %d follows %d", eid, q.lastEID)
			return n
		}
		e := Event{EID: eid, Code: le.Uint16(q.ring.Bytes()[at+8:])}
		if e.Code != 1 && e.Code != 2 {
			d.fault("event %d has code %d, at which the kernel warns", eid, e.Code)
		}
		q.lastEID = eid
		q.events = append(q.events, e)
		close(q.changed)
		q.changed = make(chan struct{})
		n++
	}
	return n
}

// Events returns the events so far and a channel that closes at the next.
func (d *Device) Events() ([]Event, <-chan struct{}) {
	q := &d.notify
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]Event(nil), q.events...), q.changed
}

// SetName sends the netdev's name, as after registration.
func (d *Device) SetName(name string) error {
	cmd := &Command{opLIFSetAttr, attrName}
	copy(cmd[4:19], name)
	if _, err := d.Admin(cmd); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	return nil
}
