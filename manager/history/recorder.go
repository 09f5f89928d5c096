// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

const (
	// again is the pause before a manager that went away is asked again.
	again = 50 * time.Millisecond
	// maxWrong is how many findings are kept.
	maxWrong = 20
)

// Recorder listens to a mesh and holds it against the model.
type Recorder struct {
	model  Model
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	wrong []error
	more  int // findings beyond those kept
	lists int // of claims
}

// Record listens to a manager from now on, or to several that share their state. It waits for one that is away or stands by.
func Record(clients ...ernicv1.ManagerServiceClient) *Recorder {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Recorder{cancel: cancel}
	for _, client := range clients {
		r.ended.Go(func() { r.persist(ctx, func() { r.mesh(ctx, client) }) })
		r.ended.Go(func() { r.persist(ctx, func() { r.claims(ctx, client) }) })
	}
	return r
}

// Stop ends the recording and returns what cannot have been, nil if all was well.
func (r *Recorder) Stop() error {
	r.cancel()
	r.ended.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	wrong := slices.Clone(r.wrong)
	if r.more > 0 {
		wrong = append(wrong, fmt.Errorf("and %d more", r.more))
	}
	return errors.Join(wrong...)
}

// Seen returns how many views there were, of how many revisions, and how many lists of claims: a recording without any
// proves nothing.
func (r *Recorder) Seen() (views, revisions, lists int) {
	views, revisions = r.model.Seen()
	r.mu.Lock()
	defer r.mu.Unlock()
	return views, revisions, r.lists
}

// Worker takes in the view that a worker holds now. It returns an error if the worker cannot be asked; what is wrong with
// the view is returned by Stop.
func (r *Recorder) Worker(ctx context.Context, who string, client ernicv1.WorkerServiceClient) error {
	stream, err := client.GetMesh(ctx, &ernicv1.GetMeshRequest{})
	if err != nil {
		return err
	}
	v := &View{}
	first := true
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		part := resp.GetUpdate()
		if part.GetTo() == nil {
			return nil // it never heard of a manager
		}
		u, err := decode(part)
		if err != nil {
			r.found(fmt.Errorf("%s: %w", who, err))
			return nil
		}
		u.Snapshot = first
		first = false
		v.Apply(u)
	}
	if !first {
		r.found(r.model.See(who, v))
	}
	return nil
}

func (r *Recorder) found(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.wrong) == maxWrong {
		r.more++
		return
	}
	r.wrong = append(r.wrong, err)
}

// persist does something until ctx ends.
func (r *Recorder) persist(ctx context.Context, do func()) {
	for ctx.Err() == nil {
		do()
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// mesh follows the view of a manager until that goes away.
func (r *Recorder) mesh(ctx context.Context, client ernicv1.ManagerServiceClient) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.WatchMesh(ctx, &ernicv1.WatchMeshRequest{})
	if err != nil {
		return
	}
	v := &View{}
	whole := true // the next part begins an update
	for {
		resp, err := stream.Recv()
		if err != nil {
			return
		}
		u, err := decode(resp.GetUpdate())
		if err != nil {
			r.found(fmt.Errorf("the manager: %w", err))
			return
		}
		u.Snapshot = u.Snapshot && whole
		v.Apply(u)
		if whole = !resp.GetUpdate().GetMore(); whole {
			r.found(r.model.See("the manager", v))
		}
	}
}

// claims follows the claims of a manager until that goes away.
func (r *Recorder) claims(ctx context.Context, client ernicv1.ManagerServiceClient) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.WatchGids(ctx, &ernicv1.WatchGidsRequest{})
	if err != nil {
		return
	}
	type key struct {
		gid  [16]byte
		node uint32
	}
	all := make(map[key]Claim)
	synced := false
	for {
		resp, err := stream.Recv()
		if err != nil {
			return
		}
		for _, g := range resp.GetRemoved() {
			delete(all, key{[16]byte(g.GetGid()), g.GetNodeId()})
		}
		for _, g := range resp.GetGids() {
			c := Claim{[16]byte(g.GetGid()), g.GetNodeId(), claimStates[g.GetState()]}
			all[key{c.GID, c.Node}] = c
		}
		// A list that comes in parts is whole with the last.
		if synced = synced || resp.GetSynced(); !synced || len(resp.GetGids()) == maxPart || len(resp.GetRemoved()) == maxPart {
			continue
		}
		list := make([]Claim, 0, len(all))
		for _, c := range all {
			list = append(list, c)
		}
		r.found(CheckClaims(list, nil))
		r.mu.Lock()
		r.lists++
		r.mu.Unlock()
	}
}

// maxPart is the most claims in one message of the manager.
const maxPart = 10000

var claimStates = map[ernicv1.ClaimState]ClaimState{
	ernicv1.ClaimState_CLAIM_STATE_ACTIVE:    Active,
	ernicv1.ClaimState_CLAIM_STATE_WITHDRAWN: Withdrawn,
	ernicv1.ClaimState_CLAIM_STATE_CONFLICT:  Conflict,
}

// decode returns an update, or says what is wrong with it.
func decode(m *ernicv1.MeshUpdate) (*Update, error) {
	if len(m.GetTo().GetHistory()) != 16 {
		return nil, fmt.Errorf("a history of %d bytes", len(m.GetTo().GetHistory()))
	}
	u := &Update{
		To: Point{[16]byte(m.GetTo().GetHistory()), m.GetTo().GetRevision()}, Snapshot: m.GetSnapshot(),
		Nodes: make(map[uint32]Node), RemovedNodes: m.GetRemovedNodeIds(), Routes: make(map[[16]byte]uint32),
	}
	for _, n := range m.GetNodes() {
		if len(n.GetInstance()) != 16 {
			return nil, fmt.Errorf("node %d has an instance of %d bytes", n.GetNodeId(), len(n.GetInstance()))
		}
		live := n.GetState() == ernicv1.NodeState_NODE_STATE_ALIVE || n.GetState() == ernicv1.NodeState_NODE_STATE_PARTITIONED
		u.Nodes[n.GetNodeId()] = Node{live, [16]byte(n.GetInstance()), n.GetAddress()}
	}
	for _, x := range m.GetRoutes() {
		if len(x.GetGid()) != 16 {
			return nil, fmt.Errorf("a route of a GID of %d bytes", len(x.GetGid()))
		}
		u.Routes[[16]byte(x.GetGid())] = x.GetNodeId()
	}
	for _, g := range m.GetRemovedGids() {
		if len(g) != 16 {
			return nil, fmt.Errorf("a removed GID of %d bytes", len(g))
		}
		u.RemovedGIDs = append(u.RemovedGIDs, [16]byte(g))
	}
	return u, nil
}
