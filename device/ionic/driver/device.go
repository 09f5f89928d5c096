// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ernic-dev/ernic/device/vfiouser/vfioclient"
)

// Options shapes the guest; the zero value is a guest of four CPUs.
type Options struct {
	CPUs     int    // online CPUs, which bound queues and event queues; default 4
	MTU      int    // default 1500
	Features uint64 // mask of the offload features to ask for; 0 asks for all
	// Slack multiplies the kernel's timeouts (5 s for a command, 2 s for RDMA's),
	// for tests on machines that are busy with other things; default 1.
	Slack int
}

// Device is a probed function. Its methods may be used from any goroutine
// unless they say otherwise.
type Device struct {
	client  *vfioclient.Client
	pci     *vfioclient.Device
	io      mmio
	mem     *Memory
	options Options

	cmdLock  sync.Mutex // one device command at a time
	intrLock sync.Mutex // guards intrUsed
	intrUsed []bool
	handlers sync.WaitGroup // goroutines of the vectors

	state struct {
		sync.Mutex
		err    error
		failed chan struct{}
	}

	identity struct {
		fwVersion, serial string
		asicType, asicRev uint8
		device, lif       []byte // as the device wrote them, 1912 bytes each
		portConfig        []byte
	}
	sizes    Sizes
	portInfo DMA
	lifInfo  DMA
	hwIndex  uint32
	queues   [4]queueIdentity // by logical type

	admin   adminQueue
	notify  notifyQueue
	mac     net.HardwareAddr
	feature uint64 // granted
	eth     ethernet
}

// Sizes is what ionic_lif_size settled on.
type Sizes struct {
	Vectors    int // MSI-X vectors in use
	QueuePairs int // most Ethernet queue pairs
	EventQs    int // RDMA event queues
	NotifyQs   int
}

// gone ends the device with a reason and returns it.
func (d *Device) gone(format string, args ...any) error {
	err := fmt.Errorf("driver: "+format, args...)
	d.Fail(err)
	return err
}

// fault ends the device with a mistake that it made.
func (d *Device) fault(format string, args ...any) { d.Fail(fmt.Errorf("driver: "+format, args...)) }

// Fail records why the device is of no use any more; the first reason stays.
// The RDMA half reports wedged queues through it.
func (d *Device) Fail(err error) {
	d.state.Lock()
	defer d.state.Unlock()
	if d.state.err == nil {
		d.state.err = err
		close(d.state.failed)
	}
}

// Err returns why the device is of no use any more, nil while it is, including
// writes of the device to freed memory.
func (d *Device) Err() error {
	d.state.Lock()
	defer d.state.Unlock()
	return d.state.err
}

// Failed is closed when Err is set.
func (d *Device) Failed() <-chan struct{} { return d.state.failed }

// Memory returns the guest's memory.
func (d *Device) Memory() *Memory { return d.mem }

// MAC returns the station address.
func (d *Device) MAC() net.HardwareAddr { return d.mac }

// Sizes returns the number of vectors and queues.
func (d *Device) Sizes() Sizes { return d.sizes }

// Features returns the offload features that the device granted.
func (d *Device) Features() uint64 { return d.feature }

// FWVersion returns the firmware version string.
func (d *Device) FWVersion() string { return d.identity.fwVersion }

// coalesce converts an interval to the units of the interrupt control blocks, as
// ionic_coal_usec_to_hw does.
func (d *Device) coalesce(usecs uint32) uint32 {
	mult, div := le.Uint32(d.identity.device[20:]), le.Uint32(d.identity.device[24:])
	if mult == 0 || div == 0 {
		return 0
	}
	return (usecs + div/mult/2) * mult / div
}

// LIFIdentity returns the 1912 bytes of the LIF identity.
func (d *Device) LIFIdentity() []byte { return d.identity.lif }

// Timeout returns how long the driver waits where the kernel waits for d.
func (d *Device) Timeout(kernel time.Duration) time.Duration {
	return kernel * time.Duration(d.options.Slack)
}

// DoorbellPages returns how many process ids there are.
func (d *Device) DoorbellPages() uint32 { return le.Uint32(d.identity.device[16:]) }

// RingDoorbell writes a doorbell of process id pid, as a process that has its
// page mapped does.
func (d *Device) RingDoorbell(pid uint32, qtype uint8, v uint64) {
	d.io.ring(d.hwIndex*d.DoorbellPages()+pid, qtype, v)
}

// Sync waits until the device has taken every register write and doorbell so
// far: a read does not pass posted writes.
func (d *Device) Sync() error {
	d.io.read8(regFWStatus)
	return d.Err()
}
