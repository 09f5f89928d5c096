// SPDX-License-Identifier: Apache-2.0

// Package guest is a virtual machine without a machine: a vfio-user client, the
// ionic driver and its RDMA half, brought up on the socket of a worker.
package guest

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver"
	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
	"github.com/ernic-dev/ernic/device/vfiouser/vfioclient"
)

// Options shapes a guest; the zero value is a guest of four CPUs.
type Options struct {
	// Memory is the guest's memory in bytes, half of it above 4 GiB; 0 is 64 MiB.
	Memory uint64
	Driver driver.Options
}

// Guest is a running guest.
type Guest struct {
	Client *vfioclient.Client
	PCI    *vfioclient.Device
	NIC    *driver.Device
	RDMA   *verbs.Device
}

// Boot connects to a worker's socket and brings everything up.
func Boot(ctx context.Context, socket string, o Options) (*Guest, error) {
	var windows []vfioclient.Window
	if o.Memory != 0 {
		half := o.Memory / 2 &^ (driver.PageSize - 1)
		windows = []vfioclient.Window{{IOVA: 0, Size: half}, {IOVA: 4 << 30, Size: half, Offset: half}}
	}
	timeout := vfioclient.DefaultTimeout * time.Duration(max(1, o.Driver.Slack))
	c, err := vfioclient.Dial(ctx, socket, vfioclient.Options{Windows: windows, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	g := &Guest{Client: c}
	if err := g.start(o); err != nil {
		c.Close()
		return nil, err
	}
	return g, nil
}

func (g *Guest) start(o Options) (err error) {
	if g.PCI, err = g.Client.Realize(); err != nil {
		return err
	}
	if g.NIC, err = driver.Probe(g.Client, g.PCI, o.Driver); err != nil {
		return err
	}
	g.RDMA, err = verbs.Open(g.NIC)
	return err
}

// LinkLocal returns the default GID of the guest: fe80::/64 and the EUI-64 of
// its station address.
func (g *Guest) LinkLocal() netip.Addr {
	m := g.NIC.MAC()
	return netip.AddrFrom16([16]byte{
		0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	})
}

// Kill ends the guest as kill -9 of its machine does.
func (g *Guest) Kill() { g.Client.Close() }

// Shutdown unloads both drivers and ends the guest. It says what the device did
// wrong since the boot, writes to freed memory included.
func (g *Guest) Shutdown() error {
	defer g.Client.Close()
	if err := g.RDMA.Close(); err != nil {
		return errors.Join(err, g.NIC.Err())
	}
	return g.NIC.Remove()
}
