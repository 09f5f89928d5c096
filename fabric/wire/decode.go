// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/ernic-dev/ernic/fabric"
)

// Decoder walks over the frames of one batch. The zero value is empty.
type Decoder struct {
	msg     []byte
	left    int // frames not yet returned
	at      int // next frame header
	payload int // next byte of the payload area
}

// Reset checks the whole of msg, which a peer sent, and points the decoder at
// its first frame. A message that does not add up is refused as a whole.
func (d *Decoder) Reset(msg []byte, version uint8) error {
	*d = Decoder{}
	if len(msg) < PrologueLen {
		return fmt.Errorf("wire: batch from the peer: %d bytes, need %d", len(msg), PrologueLen)
	}
	be := binary.BigEndian
	frames := int(be.Uint16(msg[6:]))
	head, length := uint64(be.Uint32(msg[8:])), uint64(be.Uint32(msg[12:]))
	total := uint64(len(msg))
	switch {
	case be.Uint32(msg) != batchMagic:
		return fmt.Errorf("wire: batch from the peer: magic %#08x", be.Uint32(msg))
	case msg[4] != version:
		return fmt.Errorf("wire: batch from the peer: version %d on a connection of version %d", msg[4], version)
	case msg[5] != 0:
		return fmt.Errorf("wire: batch from the peer: reserved byte is %#x", msg[5])
	case frames == 0 || frames > MaxFrames:
		return fmt.Errorf("wire: batch from the peer: %d frames, need 1 to %d", frames, MaxFrames)
	case head < PrologueLen || head > MaxHead || head > total:
		return fmt.Errorf("wire: batch from the peer: payload area at %d of %d bytes", head, total)
	case length < head || length > total || length-head > MaxPayloads:
		return fmt.Errorf("wire: batch from the peer: payload area from %d to %d of %d bytes", head, length, total)
	case total-length > MaxPadding:
		return fmt.Errorf("wire: batch from the peer: %d bytes of padding, at most %d", total-length, MaxPadding)
	}
	at, payload := uint64(PrologueLen), head
	for i := range frames {
		if head-at < FrameHeaderLen {
			return fmt.Errorf("wire: frame %d of %d from the peer: header at %d ends beyond %d", i, frames, at, head)
		}
		h := msg[at : at+FrameHeaderLen]
		hlen, plen := uint64(be.Uint16(h[4:])), uint64(be.Uint32(h[8:]))
		inline := h[2]&flagInline != 0
		switch {
		case Type(h[0]) >= types:
			return fmt.Errorf("wire: frame %d of %d from the peer: unknown type %d", i, frames, h[0])
		case !fabric.Class(h[1]).Valid():
			return fmt.Errorf("wire: frame %d of %d from the peer: unknown class %d", i, frames, h[1])
		case h[2]&^knownFlags != 0 || h[3] != 0 || h[6] != 0 || h[7] != 0:
			return fmt.Errorf("wire: frame %d of %d from the peer: unknown flags %#x or reserved bytes set", i, frames, h[2])
		case hlen > fabric.MaxHeader:
			return fmt.Errorf("wire: frame %d of %d from the peer: header of %d bytes, at most %d", i, frames, hlen, fabric.MaxHeader)
		case plen > fabric.MaxChunk:
			return fmt.Errorf("wire: frame %d of %d from the peer: payload of %d bytes, at most %d", i, frames, plen, fabric.MaxChunk)
		case Type(h[0]) != Data && (plen != PingLen || hlen != 0 || !inline):
			return fmt.Errorf("wire: frame %d of %d from the peer: control frame of %d+%d bytes, need 0+%d inline", i, frames, hlen, plen, PingLen)
		}
		at += FrameHeaderLen + hlen
		if inline {
			at += plen
		} else {
			payload += plen
		}
		if at > head || payload > length {
			return fmt.Errorf("wire: frame %d of %d from the peer: its %d+%d bytes do not fit the batch", i, frames, hlen, plen)
		}
	}
	if at != head || payload != length {
		return fmt.Errorf("wire: batch from the peer: %d bytes of head and %d of payload belong to no frame", head-at, length-payload)
	}
	*d = Decoder{msg: msg, left: frames, at: PrologueLen, payload: int(head)}
	return nil
}

// Frames is the number of frames that Next has still to return.
func (d *Decoder) Frames() int { return d.left }

// Next fills in the next frame, false behind the last one.
func (d *Decoder) Next(f *Frame) bool {
	if d.left == 0 {
		return false
	}
	d.left--
	be := binary.BigEndian
	h := d.msg[d.at : d.at+FrameHeaderLen]
	f.Type, f.Class = Type(h[0]), fabric.Class(h[1])
	hlen, plen := int(be.Uint16(h[4:])), int(be.Uint32(h[8:]))
	f.Src, f.Dst, f.Flow = be.Uint32(h[12:]), be.Uint32(h[16:]), be.Uint32(h[20:])
	f.Seq = be.Uint64(h[24:])
	d.at += FrameHeaderLen
	f.Header = d.msg[d.at : d.at+hlen : d.at+hlen]
	d.at += hlen
	if h[2]&flagInline != 0 {
		f.Payload = d.msg[d.at : d.at+plen : d.at+plen]
		d.at += plen
	} else {
		f.Payload = d.msg[d.payload : d.payload+plen : d.payload+plen]
		d.payload += plen
	}
	return true
}
