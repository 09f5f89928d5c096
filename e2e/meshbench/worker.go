// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

const (
	// anyNode asks the manager for the lowest free id.
	anyNode = 0xFFFFFFFF
	// The pauses between two attempts to register are those of a real worker.
	pauseMin, pauseMax = 100 * time.Millisecond, 2 * time.Second
	// patience is how long the manager may take to accept a registration.
	patience = 15 * time.Second
)

// worker is a worker's membership of the mesh, without the rest of a worker. It
// says and hears what a real one does and leaves the bytes of an update alone if
// somebody else has decoded them.
type worker struct {
	fleet *fleet
	index int
	gids  []gid.GID

	node       atomic.Uint32
	registered atomic.Bool
	now        atomic.Pointer[view]
	changes    chan *ernicv1.ClaimUpdate // of addresses, while it lives

	instance    [16]byte
	incarnation uint64
	stop        context.CancelFunc // nil before the first start
	ended       chan struct{}

	mu   sync.Mutex // guards what follows
	conn net.Conn
	dead bool
	err  error // why the last attempt ended
}

func (w *worker) view() *view { return w.now.Load() }

func (w *worker) isRegistered() bool { return w.registered.Load() }

func (w *worker) trouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// start begins a life of the worker, as another process than before.
func (w *worker) start() {
	// Read never fails; see its documentation.
	rand.Read(w.instance[:])
	w.incarnation = uint64(time.Now().UnixNano())
	w.node.Store(anyNode)
	w.now.Store(nothing)
	w.changes = make(chan *ernicv1.ClaimUpdate, 1)
	w.ended = make(chan struct{})
	w.mu.Lock()
	w.dead = false
	w.mu.Unlock()
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	go func() {
		defer close(w.ended)
		w.run(ctx)
	}()
}

// kill ends the worker as SIGKILL would: its connection breaks, and it takes no
// leave.
func (w *worker) kill() {
	if w.stop == nil {
		return
	}
	w.mu.Lock()
	w.dead = true
	if w.conn != nil {
		_ = w.conn.Close() // it may be broken already
	}
	w.mu.Unlock()
	w.stop()
	<-w.ended
}

// change claims or releases an address besides the worker's own.
func (w *worker) change(m *ernicv1.ClaimUpdate) { w.changes <- m }

var errDead = errors.New("the worker is dead")

func (w *worker) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errors.Join(errDead, c.Close())
	}
	w.conn = c
	return c, nil
}

// run keeps the worker registered until ctx ends.
func (w *worker) run(ctx context.Context) {
	pause := pauseMin
	for {
		registered, err := w.attempt(ctx)
		w.registered.Store(false)
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		if registered {
			pause = pauseMin
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause - mathrand.N(pause/2)):
		}
		pause = min(pause*8/5, pauseMax)
	}
}

// raw passes the bytes of messages through.
type raw struct{}

// Marshal implements encoding.Codec.
func (raw) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }

// Unmarshal implements encoding.Codec.
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}

// Name implements encoding.Codec.
func (raw) Name() string { return "proto" }

// meshField is the number of the mesh update in a SessionResponse, moreField and
// snapshotField those of its flags.
const (
	meshField     = 4
	snapshotField = 2
	moreField     = 3
)

// call is one stream to the manager.
type call struct {
	w        *worker
	stream   grpc.ClientStream
	watchdog *time.Timer
	answers  chan *ernicv1.SessionRequest
	accepted chan *ernicv1.Registered
	ended    chan error
	silence  time.Duration
	parts    [][]byte // of an update that is not complete yet
}

// attempt registers and stays until the stream ends.
func (w *worker) attempt(ctx context.Context) (registered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn, err := grpc.NewClient("passthrough:///"+w.fleet.manager, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithContextDialer(w.dial))
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	c := &call{w: w, answers: make(chan *ernicv1.SessionRequest, 4), accepted: make(chan *ernicv1.Registered, 1), ended: make(chan error, 1), silence: patience}
	c.watchdog = time.AfterFunc(c.silence, func() { cancel(errors.New("the manager is silent")) })
	defer c.watchdog.Stop()
	fail := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	c.stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, ernicv1.ManagerService_Session_FullMethodName,
		grpc.ForceCodec(raw{}))
	if err != nil {
		return false, fail(err)
	}
	m := &ernicv1.Register{
		Protocol: &ernicv1.VersionRange{Min: 1, Max: 1}, NodeId: w.node.Load(), Instance: w.instance[:], Incarnation: w.incarnation,
		Name: fmt.Sprint("w", w.index), Address: fmt.Sprintf("127.0.0.1:%d", 10000+w.index), Version: "meshbench",
	}
	if v := w.view(); v != nothing {
		m.Have = &ernicv1.MeshPoint{History: v.mesh.History[:], Revision: v.mesh.Revision}
	}
	if err := c.stream.SendMsg(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Register{Register: m}}); err != nil {
		return false, fail(c.stream.RecvMsg(&[]byte{}))
	}
	go c.receive()
	select {
	case err := <-c.ended:
		return false, fail(err)
	case r := <-c.accepted:
		w.registered.Store(true)
		return true, fail(c.run(ctx, r))
	}
}

// run sends what there is to send until the stream ends.
func (c *call) run(ctx context.Context, r *ernicv1.Registered) error {
	w := c.w
	var sequence uint64
	if len(r.GetClaims()) < len(w.gids) {
		own := &ernicv1.ClaimUpdate{}
		for i := range w.gids {
			own.Claim = append(own.Claim, &ernicv1.Claim{Gid: w.gids[i][:], Source: ernicv1.ClaimSource_CLAIM_SOURCE_IP})
		}
		sequence++
		if err := c.send(own, sequence); err != nil {
			return <-c.ended
		}
	}
	interval := r.GetHealthInterval().AsDuration()
	beat := time.NewTimer(0)
	defer beat.Stop()
	var beats uint64
	for {
		var err error
		select {
		case err := <-c.ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-beat.C:
			// A little early by chance, as a real worker.
			beat.Reset(interval - mathrand.N(interval/10+1))
			beats++
			err = c.stream.SendMsg(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Heartbeat{
				Heartbeat: &ernicv1.Heartbeat{NodeId: w.node.Load(), Sequence: beats, Report: &ernicv1.NodeReport{GuestAttached: true}},
			}})
		case m := <-c.answers:
			err = c.stream.SendMsg(m)
		case m := <-w.changes:
			sequence++
			err = c.send(m, sequence)
		}
		if err != nil {
			return <-c.ended
		}
	}
}

func (c *call) send(m *ernicv1.ClaimUpdate, sequence uint64) error {
	m.NodeId, m.Sequence = c.w.node.Load(), sequence
	return c.stream.SendMsg(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Claims{Claims: m}})
}

// receive takes in what the manager sends until the stream ends.
func (c *call) receive() {
	for {
		var b []byte
		err := c.stream.RecvMsg(&b)
		if err == nil {
			c.watchdog.Reset(c.silence)
			err = c.take(b)
		}
		if err != nil {
			c.ended <- err
			return
		}
	}
}

func (c *call) take(b []byte) error {
	number, kind, n := protowire.ConsumeTag(b)
	if n > 0 && number == meshField && kind == protowire.BytesType {
		part, m := protowire.ConsumeBytes(b[n:])
		if m < 0 || n+m != len(b) {
			return fmt.Errorf("a mesh update in a message of %d bytes makes no sense", len(b))
		}
		return c.takeMesh(part)
	}
	var m ernicv1.SessionResponse
	if err := proto.Unmarshal(b, &m); err != nil {
		return err
	}
	switch m := m.GetMessage().(type) {
	case *ernicv1.SessionResponse_Registered:
		c.silence = 3 * m.Registered.GetHealthInterval().AsDuration()
		c.w.node.Store(m.Registered.GetNodeId())
		c.accepted <- m.Registered
	case *ernicv1.SessionResponse_ClaimAck:
		if n := len(m.ClaimAck.GetRejected()); n > 0 {
			return fmt.Errorf("%d claims are rejected, one because %s", n, m.ClaimAck.GetRejected()[0].GetReason())
		}
	case *ernicv1.SessionResponse_Probe:
		c.answers <- &ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_ProbeAnswer{
			ProbeAnswer: &ernicv1.ProbeAnswer{Sequence: m.Probe.GetSequence()},
		}}
	}
	return nil
}

// takeMesh takes a part of an update.
func (c *call) takeMesh(part []byte) error {
	var more, snapshot bool
	for b := part; len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return protowire.ParseError(n)
		}
		switch number {
		case moreField:
			more = b[0] != 0
		case snapshotField:
			snapshot = b[0] != 0
		}
		b = b[n:]
	}
	if c.parts = append(c.parts, part); more {
		return nil
	}
	w := c.w
	now, err := w.fleet.views.next(w.view(), c.parts, snapshot)
	if c.parts = nil; err != nil {
		return err
	}
	w.now.Store(now)
	w.fleet.tracer.seen(w.index, now.mesh)
	return nil
}
