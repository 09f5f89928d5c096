// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/netport"
)

// headerLen is the length of struct virtio_net_hdr.
const headerLen = 10

// Values of struct virtio_net_hdr.
const (
	hdrNeedsChecksum = 1
	gsoNone          = 0
	gsoTCP4          = 1
	gsoTCP6          = 4
	gsoECN           = 0x80
)

// unknownSegmentation is one that nobody can do, so that the frame is refused.
const unknownSegmentation netport.Segmentation = 0xff

// offloads is what the host's network stack may leave to us (TUN_F_*): checksums,
// TCP over IPv4 and IPv6, with CWR.
const offloads = 0x01 | 0x02 | 0x04 | 0x08

var native = binary.NativeEndian

// encode stores the header of a frame.
func encode(b *[headerLen]byte, frame []byte, o *netport.Offload) {
	*b = [headerLen]byte{}
	if !o.Checksum {
		return
	}
	b[0] = hdrNeedsChecksum
	native.PutUint16(b[6:], o.CsumStart)
	native.PutUint16(b[8:], o.CsumOffset)
	switch o.Segment {
	case netport.SegmentTCP4:
		b[1] = gsoTCP4
	case netport.SegmentTCP6:
		b[1] = gsoTCP6
	default:
		return
	}
	native.PutUint16(b[4:], o.Size)
	// The kernel wants to know where the payload starts and whether CWR is set.
	tcp := int(o.CsumStart)
	if tcp+13 < len(frame) {
		native.PutUint16(b[2:], uint16(tcp)+uint16(frame[tcp+12]>>4)*4)
		b[1] |= frame[tcp+13] & gsoECN
	}
}

// decode reads the header of a frame from the kernel.
func decode(b []byte) (o netport.Offload) {
	if len(b) < headerLen {
		return o
	}
	if b[0]&hdrNeedsChecksum != 0 {
		o.Checksum, o.CsumStart, o.CsumOffset = true, native.Uint16(b[6:]), native.Uint16(b[8:])
	}
	switch b[1] &^ gsoECN {
	case gsoNone:
		return o
	case gsoTCP4:
		o.Segment = netport.SegmentTCP4
	case gsoTCP6:
		o.Segment = netport.SegmentTCP6
	default:
		o.Segment = unknownSegmentation
	}
	o.Size = native.Uint16(b[4:])
	return o
}

// offloading is a port that carries frames with work left in them.
type offloading struct{ *Port }

var (
	_ netport.Offloader = offloading{}
	_ netport.Carrier   = offloading{}
)

// SendOffload implements [netport.Offloader].
func (p offloading) SendOffload(q int, frame []byte, o *netport.Offload) error {
	return p.send(q, frame, o)
}

// offloadsWork asks the host's TAP driver whether it knows virtio-net headers.
func offloadsWork() error {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return nil // attaching fails as well, and says why
	}
	defer func() { _ = file.Close() }()
	return control(file, func(fd int) error {
		features, err := unix.IoctlGetUint32(fd, unix.TUNGETFEATURES)
		if err == nil && features&unix.IFF_VNET_HDR == 0 {
			err = errors.New("it knows no vnet_hdr")
		}
		return err
	})
}

// openOffloading opens the interface for frames with a virtio-net header.
func (p *Port) openOffloading() (*os.File, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// A descriptor that does not block, so that the netpoller takes it.
	ifr, err := unix.NewIfreq(p.name)
	if err == nil {
		flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if p.multi {
			flags |= unix.IFF_MULTI_QUEUE
		}
		ifr.SetUint16(flags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err == nil {
		// Who had the interface before may have left it with another header.
		err = unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, headerLen)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), device), nil
}
