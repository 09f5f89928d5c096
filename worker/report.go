// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"net"
	"strconv"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/fabric"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

// linkStates names the states of the fabric's links for the manager.
var linkStates = [fabric.PeerStates]ernicv1.LinkState{
	fabric.PeerIdle:       ernicv1.LinkState_LINK_STATE_IDLE,
	fabric.PeerConnecting: ernicv1.LinkState_LINK_STATE_CONNECTING,
	fabric.PeerUp:         ernicv1.LinkState_LINK_STATE_UP,
	fabric.PeerBackoff:    ernicv1.LinkState_LINK_STATE_BACKOFF,
}

// report is what the worker says of itself with a heartbeat. Of links that
// nothing ever needed there is nothing to say.
func (m *mesh) report() session.Report {
	w := m.worker
	r := session.Report{
		GuestAttached: w.attached.Load(), Draining: w.drain.wished(), Interface: interfaceReport(w.config.TAP),
		Status: m.statusAddress(), Carrier: w.nic.LIF().Link(), LinkDown: w.linkDown.Load(),
	}
	r.MemoryShared, r.MemoryPrivate = memoryOf(w.memory.Load())
	if w.nic.LIF().MemoryApart() {
		// It came as files, but the guest writes elsewhere.
		r.MemoryShared, r.MemoryPrivate = 0, r.MemoryShared+r.MemoryPrivate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.link == nil {
		return r
	}
	for _, s := range m.link.Stats() {
		if s.Node == m.node || s.State == fabric.PeerIdle && s.LastError == "" {
			continue
		}
		r.Links = append(r.Links, session.Link{
			Peer: s.Node, State: linkStates[s.State], Lanes: s.Lanes, RTT: s.RTT, QueuedBytes: s.QueuedBytes,
			Reconnects: s.Reconnects, ConnectFailures: s.ConnectFailures, LastError: s.LastError,
			Relayed: m.relay != nil && m.relay.Relayed(s.Node),
		})
	}
	return r
}

// memoryOf returns how much of a guest's memory is shared with the worker and how
// much is not, in bytes.
func memoryOf(mem *guestmem.Space) (shared, private uint64) {
	if mem == nil {
		return 0, 0
	}
	for _, w := range mem.Windows() {
		if w.Message {
			private += w.Size
		} else {
			shared += w.Size
		}
	}
	return shared, private
}

// interfaceReport is the state of the TAP, nil if the worker has none.
func interfaceReport(name string) *session.Interface {
	if name == "" {
		return nil
	}
	r := &session.Interface{Name: name}
	if i, err := net.InterfaceByName(name); err == nil {
		r.Present, r.Up, r.MTU = true, i.Flags&net.FlagUp != 0, i.MTU
	}
	return r
}

// statusAddress is where operators reach the status listener, "" if there is
// none. One on all addresses of the host is reached at the address that peers
// use.
func (m *mesh) statusAddress() string {
	c := &m.worker.config
	if c.Status == nil {
		return ""
	}
	a, ok := c.Status.Addr().(*net.TCPAddr)
	if !ok || !a.IP.IsUnspecified() {
		return c.Status.Addr().String()
	}
	host, _, err := net.SplitHostPort(m.session.Addr())
	if err != nil {
		return a.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(a.Port))
}
