// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

const (
	// rememberedEvents is how many events an operator can look back.
	rememberedEvents = 4096
	// maxEvents is the most events in one response.
	maxEvents = 512
)

// eventLog remembers what happened last. Event n, counted from 1, stands at n modulo the length of the ring.
type eventLog struct {
	mu   sync.Mutex // guards what follows
	ring []pastEvent
	last uint64
}

type pastEvent struct {
	at   time.Time
	note core.Note
}

func (l *eventLog) init() { l.ring = make([]pastEvent, rememberedEvents) }

func (l *eventLog) add(at time.Time, n core.Note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	l.ring[l.last%rememberedEvents] = pastEvent{at, n}
}

// oldest returns the first of the last so many events.
func (l *eventLog) oldest(last uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last == 0 || last > rememberedEvents {
		last = rememberedEvents
	}
	return l.last - min(last, l.last) + 1
}

// read returns events from number next on, at most maxEvents, and how many before them are forgotten already.
func (l *eventLog) read(next uint64) (events []*ernicv1.Event, missed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last >= rememberedEvents {
		if first := l.last - rememberedEvents + 1; next < first {
			missed = first - next
			next = first
		}
	}
	for ; next <= l.last && len(events) < maxEvents; next++ {
		e := &l.ring[next%rememberedEvents]
		m := &ernicv1.Event{
			Sequence: next, Time: timestamppb.New(e.at), Kind: e.note.Kind.String(), Grave: e.note.Kind.Grave(),
			NodeId: uint32(e.note.Node), Text: e.note.Text,
		}
		if g := e.note.GID; g != (core.GID{}) {
			m.Gid = g[:]
		}
		events = append(events, m)
	}
	return events, missed
}

// WatchEvents sends past events and, if asked to, goes on with those to come.
func (s *Server) WatchEvents(r *ernicv1.WatchEventsRequest, stream grpc.ServerStreamingServer[ernicv1.WatchEventsResponse]) error {
	next := s.history.oldest(uint64(r.GetLast()))
	for {
		change := s.changed.next()
		events, missed := s.history.read(next)
		if len(events) > 0 {
			if err := stream.Send(&ernicv1.WatchEventsResponse{Events: events, Missed: missed}); err != nil {
				return err
			}
			next = events[len(events)-1].GetSequence() + 1
			continue
		}
		if !r.GetFollow() {
			return nil
		}
		select {
		case <-change:
		case <-stream.Context().Done():
			return nil
		case <-s.done:
			return errGoingDown
		}
	}
}
