// SPDX-License-Identifier: Apache-2.0

package vfioclient

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Limits that QEMU announces and refuses to see exceeded.
const (
	maxMsgFDs       = 16
	maxDataTransfer = 1 << 20
	maxTransferSeen = 64 << 20
	maxDMAMaps      = 65535
)

// offer is the text of QEMU 11.1.3, with the spaces it writes.
const offer = `{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, ` +
	`"max_data_xfer_size": 1048576, "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}`

// Capabilities is what the server's version reply says, or the defaults.
type Capabilities struct {
	MaxMsgFDs     int  // descriptors in one message to the server
	MaxDataXfer   int  // bytes in one region or DMA message
	MaxDMAMaps    int  // DMA windows
	WriteMultiple bool // REGION_WRITE_MULTI is accepted
}

// defaultCapabilities are what QEMU assumes of a server that names none.
var defaultCapabilities = Capabilities{MaxMsgFDs: 8, MaxDataXfer: maxDataTransfer, MaxDMAMaps: maxDMAMaps}

// Capabilities returns what the server said.
func (c *Client) Capabilities() Capabilities { return *c.caps.Load() }

func (c *Client) negotiate() error {
	payload := append(make([]byte, 4), offer...)
	payload = append(payload, 0)
	reply, err := c.request(cmdVersion, "VERSION", payload)
	if err != nil {
		return err
	}
	caps, err := parseVersion(reply, len(payload))
	c.caps.Store(&caps)
	return err
}

// parseVersion applies QEMU's checks to a version reply; limit is the size of
// the request's payload, which is all the room QEMU has for the answer.
func parseVersion(b []byte, limit int) (Capabilities, error) {
	caps := defaultCapabilities
	refuse := func(format string, args ...any) (Capabilities, error) {
		return caps, fmt.Errorf("vfioclient: version reply: "+format, args...)
	}
	switch {
	case len(b) > limit:
		return refuse("%d bytes, larger than the request's %d", len(b), limit)
	case len(b) < 4:
		return refuse("%d bytes, want at least 4", len(b))
	case le.Uint16(b) != 0 || le.Uint16(b[2:]) != 0:
		return refuse("version %d.%d, want 0.0", le.Uint16(b), le.Uint16(b[2:]))
	case len(b) == 4:
		return caps, nil
	case bytes.IndexByte(b[4:], 0) != len(b)-5:
		return refuse("the text does not end with its only NUL")
	}
	var reply struct {
		Capabilities *struct {
			MaxMsgFDs     *int64 `json:"max_msg_fds"`
			MaxDataXfer   *int64 `json:"max_data_xfer_size"`
			MaxDMAMaps    *int64 `json:"max_dma_maps"`
			PageSizes     *int64 `json:"pgsizes"`
			WriteMultiple bool   `json:"write_multiple"`
			Migration     any    `json:"migration"`
		} `json:"capabilities"`
	}
	dec := json.NewDecoder(bytes.NewReader(b[4 : len(b)-1]))
	// QEMU only warns of names it does not know; a test must not miss them.
	dec.DisallowUnknownFields()
	if err := dec.Decode(&reply); err != nil {
		return refuse("%v", err)
	}
	if reply.Capabilities == nil {
		return refuse("no capabilities object")
	}
	r := reply.Capabilities
	for _, f := range []struct {
		name     string
		in       *int64
		out      *int
		low, top int64
	}{
		{"max_msg_fds", r.MaxMsgFDs, &caps.MaxMsgFDs, 0, maxMsgFDs},
		{"max_data_xfer_size", r.MaxDataXfer, &caps.MaxDataXfer, 1, maxTransferSeen},
		{"max_dma_maps", r.MaxDMAMaps, &caps.MaxDMAMaps, 0, maxDMAMaps},
	} {
		if f.in == nil {
			continue
		}
		if *f.in < f.low || *f.in > f.top {
			return refuse("%s %d is not in %d..%d", f.name, *f.in, f.low, f.top)
		}
		*f.out = int(*f.in)
	}
	if r.PageSizes != nil && (*r.PageSizes == 0 || *r.PageSizes&0xfff != 0) {
		return refuse("pgsizes %#x", *r.PageSizes)
	}
	caps.WriteMultiple = r.WriteMultiple
	return caps, nil
}
