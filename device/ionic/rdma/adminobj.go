// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/header"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
)

func (l *lif) adminCreateCQ(b []byte) error {
	var c abi.CreateCQ
	c.Get(b)
	return l.newCQ(&c)
}

func (l *lif) adminDestroyCQ(b []byte) error {
	var c abi.Destroy
	c.Get(b)
	q := l.cqs.Get(c.ID)
	if q == nil {
		return abi.Refuse(abi.AdminBadIndex, "destroy completion queue %d: does not exist", c.ID)
	}
	if q.InUse() {
		return abi.Refuse(abi.AdminBadState, "destroy completion queue %d: queues complete to it", c.ID)
	}
	q.Stop()
	l.cqs.RemoveIf(c.ID, q)
	q.Ring.Free(l.budget)
	return nil
}

func (l *lif) adminCreateMR(b []byte) error {
	var c abi.CreateMR
	c.Get(b)
	return l.mrs.Create(&c)
}

func (l *lif) adminDestroyMR(b []byte) error {
	var c abi.Destroy
	c.Get(b)
	return l.mrs.Destroy(c.ID)
}

func (l *lif) adminCreateAH(b []byte) error {
	var c abi.CreateAH
	c.Get(b)
	if c.ID >= l.ahs.Limit() {
		return abi.Refuse(abi.AdminBadIndex, "create address handle %d: there are %d", c.ID, l.ahs.Limit())
	}
	t, err := l.template(c.DMA, c.Length)
	if err != nil {
		return abi.Refuse(abi.AdminBadAttr, "create address handle %d: %v", c.ID, err)
	}
	// The id may still be known: the driver destroys no handle of a connected
	// QP and ignores failures to destroy.
	l.ahs.Replace(c.ID, &addressHandle{pd: c.PD, template: t})
	l.seen(t, SourceAH)
	return nil
}

func (l *lif) adminDestroyAH(b []byte) error {
	var c abi.Destroy
	c.Get(b)
	if l.ahs.Remove(c.ID) == nil {
		return abi.Refuse(abi.AdminBadIndex, "destroy address handle %d: does not exist", c.ID)
	}
	return nil
}

// template reads a header template of n bytes.
func (l *lif) template(dma uint64, n uint32) (*header.Template, error) {
	var buf [header.MaxLen]byte
	b := buf[:min(n, header.MaxLen)]
	if n <= header.MaxLen {
		if err := l.mem.ReadAt(b, dma); err != nil {
			return nil, err
		}
		return header.Parse(b)
	}
	return nil, header.ErrLength(n)
}

// seen reports the address the guest sends from.
func (l *lif) seen(t *header.Template, s AddressSource) {
	if o := l.engine.config.Addresses; o != nil {
		o.AddressSeen(packet.Address{GID: t.SrcGID, MAC: t.SrcMAC}, s)
	}
}
