// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// QMP is a connection to QEMU's control socket. It is safe for concurrent use.
type QMP struct {
	conn net.Conn

	mu      sync.Mutex // guards what follows
	next    int
	waiting map[int]chan qmpReply
	events  []QMPEvent
	lost    error
}

// QMPEvent is something that QEMU reported unasked, such as SHUTDOWN.
type QMPEvent struct {
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// QMPError is QEMU's refusal of a command.
type QMPError struct {
	Command string
	Class   string `json:"class"`
	Desc    string `json:"desc"`
}

func (e *QMPError) Error() string {
	return fmt.Sprintf("QEMU refuses %s: %s (%s)", e.Command, e.Desc, e.Class)
}

type qmpReply struct {
	ID     *int            `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *QMPError       `json:"error"`
	QMPEvent
}

// DialQMP connects to a QMP socket, waiting for QEMU to listen until ctx ends.
func DialQMP(ctx context.Context, socket string) (*QMP, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", socket)
		if err == nil {
			return newQMP(ctx, conn)
		}
		if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("QMP: %w", err)
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("QMP: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

func newQMP(ctx context.Context, conn net.Conn) (*QMP, error) {
	q := &QMP{conn: conn, waiting: map[int]chan qmpReply{}}
	d := json.NewDecoder(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	var greeting struct {
		QMP json.RawMessage `json:"QMP"`
	}
	err := d.Decode(&greeting)
	if err == nil && greeting.QMP == nil {
		err = errors.New("no greeting")
	}
	if !stop() || err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("QMP: greeting: %w", errors.Join(context.Cause(ctx), err))
	}
	go q.receive(d)
	if _, err := q.Execute(ctx, "qmp_capabilities", nil); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return q, nil
}

func (q *QMP) receive(d *json.Decoder) {
	for {
		var r qmpReply
		if err := d.Decode(&r); err != nil {
			q.mu.Lock()
			q.lost = fmt.Errorf("QMP: %w: %w", ErrGone, err)
			for id, c := range q.waiting {
				delete(q.waiting, id)
				close(c)
			}
			q.mu.Unlock()
			_ = q.conn.Close()
			return
		}
		q.mu.Lock()
		if r.Event != "" {
			q.events = append(q.events, r.QMPEvent)
		} else if r.ID != nil {
			if c := q.waiting[*r.ID]; c != nil {
				delete(q.waiting, *r.ID)
				c <- r
			}
		}
		q.mu.Unlock()
	}
}

// Execute runs one command and returns what it returns. args is encoded as
// JSON; nil is no arguments.
func (q *QMP) Execute(ctx context.Context, command string, args any) (json.RawMessage, error) {
	c := make(chan qmpReply, 1)
	q.mu.Lock()
	if q.lost != nil {
		defer q.mu.Unlock()
		return nil, q.lost
	}
	q.next++
	id := q.next
	q.waiting[id] = c
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        int    `json:"id"`
	}{command, args, id})
	if err == nil {
		_, err = q.conn.Write(b)
	}
	if err != nil {
		delete(q.waiting, id)
	}
	q.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("QMP: %s: %w", command, err)
	}
	select {
	case r, ok := <-c:
		switch {
		case !ok:
			q.mu.Lock()
			defer q.mu.Unlock()
			return nil, q.lost
		case r.Error != nil:
			r.Error.Command = command
			return nil, r.Error
		}
		return r.Return, nil
	case <-ctx.Done():
		q.mu.Lock()
		delete(q.waiting, id)
		q.mu.Unlock()
		return nil, fmt.Errorf("QMP: %s: %w", command, context.Cause(ctx))
	}
}

// Events returns what QEMU has reported so far.
func (q *QMP) Events() []QMPEvent {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]QMPEvent(nil), q.events...)
}

// Close ends the connection. QEMU lives on.
func (q *QMP) Close() error { return q.conn.Close() }
