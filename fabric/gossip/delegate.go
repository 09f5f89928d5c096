// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"
	"google.golang.org/protobuf/proto"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

const (
	// maxBroadcast is the longest record that goes by datagram; memberlist's datagrams have 1,400 bytes.
	maxBroadcast = 1000
	// maxGIDs is the most addresses in a record.
	maxGIDs = 4096
	// Members that are gone are remembered for goneFor at least, and for ever while they are at most maxGone.
	maxGone = 1024
	goneFor = 10 * time.Minute
	// spareRecords is how many records there may be of processes that are no members, or not yet.
	spareRecords = 1024
)

// encode serializes a message of this package, which has no field that could keep it from that.
func encode(m proto.Message) []byte {
	raw, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

// NodeMeta implements memberlist.Delegate.
func (p *Pool) NodeMeta(int) []byte {
	return encode(&ernicv1.GossipMeta{Instance: p.cfg.Instance[:], Manager: p.cfg.Manager})
}

// NotifyMsg takes a record that was broadcast. It implements memberlist.Delegate.
func (p *Pool) NotifyMsg(raw []byte) {
	r := &ernicv1.GossipRecord{}
	if err := proto.Unmarshal(raw, r); err != nil {
		p.refuse()
		return
	}
	if p.take(r) {
		p.spread(r)
	}
}

// GetBroadcasts implements memberlist.Delegate.
func (p *Pool) GetBroadcasts(overhead, limit int) [][]byte {
	return p.queue.GetBroadcasts(overhead, limit)
}

// LocalState returns all records. It implements memberlist.Delegate.
func (p *Pool) LocalState(bool) []byte {
	p.mu.Lock()
	all := &ernicv1.GossipRecords{}
	for instance, r := range p.records {
		if _, alive := p.members[instance]; alive || instance == p.cfg.Instance {
			all.Records = append(all.Records, r)
		}
	}
	p.mu.Unlock()
	return encode(all)
}

// MergeRemoteState takes the records of another member. It implements memberlist.Delegate.
func (p *Pool) MergeRemoteState(raw []byte, _ bool) {
	all := &ernicv1.GossipRecords{}
	if err := proto.Unmarshal(raw, all); err != nil {
		p.refuse()
		return
	}
	for _, r := range all.GetRecords() {
		if p.take(r) {
			p.spread(r)
		}
	}
}

// check says what is wrong with a record.
func check(r *ernicv1.GossipRecord) error {
	if len(r.GetInstance()) != 16 || r.GetVersion() == 0 {
		return fmt.Errorf("instance of %d bytes, version %d", len(r.GetInstance()), r.GetVersion())
	}
	if r.GetNodeId() == 0 || r.GetNodeId() == 0xFFFFFFFF {
		return fmt.Errorf("node %d", r.GetNodeId())
	}
	if len(r.GetGids()) > maxGIDs || len(r.GetName()) > 128 || len(r.GetAddress()) > 280 || len(r.GetIdentity()) > 256 {
		return fmt.Errorf("a record of node %d that is too large", r.GetNodeId())
	}
	for _, g := range r.GetGids() {
		if len(g) != 16 {
			return fmt.Errorf("a GID of %d bytes", len(g))
		}
	}
	return nil
}

// take enters a record, and reports whether it was news.
func (p *Pool) take(r *ernicv1.GossipRecord) bool {
	if err := check(r); err != nil {
		p.refuse()
		return false
	}
	instance := [16]byte(r.GetInstance())
	p.mu.Lock()
	defer p.mu.Unlock()
	if instance == p.cfg.Instance {
		return false // nobody else knows better
	}
	if _, gone := p.gone[instance]; gone || p.records[instance].GetVersion() >= r.GetVersion() {
		return false
	}
	if len(p.records) > len(p.members)+spareRecords {
		p.invalid++
		return false
	}
	p.records[instance] = r
	p.signal()
	return true
}

func (p *Pool) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.invalid++
}

// spread has a record broadcast if it is small enough.
func (p *Pool) spread(r *ernicv1.GossipRecord) {
	if raw := encode(r); len(raw) <= maxBroadcast {
		p.queue.QueueBroadcast(&broadcast{[16]byte(r.GetInstance()), raw})
	}
}

// broadcast is a record on its way. One of a newer version takes its place.
type broadcast struct {
	instance [16]byte
	raw      []byte
}

// Invalidates implements memberlist.Broadcast.
func (b *broadcast) Invalidates(other memberlist.Broadcast) bool {
	o, ok := other.(*broadcast)
	return ok && o.instance == b.instance
}

// Message implements memberlist.Broadcast.
func (b *broadcast) Message() []byte { return b.raw }

// Finished implements memberlist.Broadcast.
func (b *broadcast) Finished() {}

// NotifyJoin implements memberlist.EventDelegate.
func (p *Pool) NotifyJoin(n *memberlist.Node) { p.seen(n, true) }

// NotifyUpdate implements memberlist.EventDelegate.
func (p *Pool) NotifyUpdate(n *memberlist.Node) { p.seen(n, true) }

// NotifyLeave implements memberlist.EventDelegate.
func (p *Pool) NotifyLeave(n *memberlist.Node) { p.seen(n, false) }

func (p *Pool) seen(n *memberlist.Node, alive bool) {
	meta := &ernicv1.GossipMeta{}
	if err := proto.Unmarshal(n.Meta, meta); err != nil || len(meta.GetInstance()) != 16 {
		p.refuse()
		return
	}
	instance := [16]byte(meta.GetInstance())
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.members[instance]
	if alive {
		if now != nil && later(now.Name, n.Name) {
			return // somebody has not heard yet that it moved
		}
		copied := *n
		p.members[instance] = &copied
		delete(p.gone, instance)
		delete(p.lost, instance)
	} else {
		if now != nil && now.Name != n.Name {
			return // it has moved, and this is what it was before
		}
		delete(p.members, instance)
		delete(p.records, instance)
		p.gone[instance] = time.Now()
		// memberlist does not tell who fell silent from who left, which is looked for in vain.
		p.lose(instance, n)
		p.forget()
	}
	p.signal()
}

// forget forgets members that are gone for long, if there are many.
func (p *Pool) forget() {
	if len(p.gone) <= maxGone {
		return
	}
	for instance, since := range p.gone {
		if time.Since(since) > goneFor {
			delete(p.gone, instance)
		}
	}
}
