// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// Workers that are told the same at the same time are sent the same bytes, made once.
func TestUpdatesAreMadeOnceForAll(t *testing.T) {
	s, err := New(Config{Log: zerolog.Nop(), Core: core.Config{MaxClaims: 2 * maxUpdatePart}})
	if err != nil {
		t.Fatal(err)
	}
	const routes = maxUpdatePart + 10
	now := time.Now()
	s.core.Step(now, core.Register{Session: 1, Node: core.AnyNode, Protocol: core.Versions{Min: 1, Max: 1}, Addr: "h:1"}, nil)
	claims := core.ClaimUpdate{Session: 1, Node: 1}
	for i := range routes {
		claims.Claims = append(claims.Claims, core.Claim{GID: core.GID{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}, Source: core.SourceIP})
	}
	s.core.Step(now, claims, nil)

	const workers = 50
	updates := make([]*update, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { updates[i], _ = s.updateSince(point{}) })
	}
	wg.Wait()
	var total int
	for i, u := range updates {
		if u != updates[0] {
			t.Fatalf("worker %d is sent an update of its own", i)
		}
	}
	u := updates[0]
	if !u.snapshot || len(u.parts) != 2 {
		t.Fatalf("snapshot %v in %d parts, want one in two", u.snapshot, len(u.parts))
	}
	for i, raw := range u.parts {
		m, err := decodeUpdate(raw)
		if err != nil {
			t.Fatal(err)
		}
		if total += len(m.GetRoutes()); m.GetMore() != (i == 0) || !m.GetSnapshot() {
			t.Errorf("part %d: more %v, snapshot %v", i, m.GetMore(), m.GetSnapshot())
		}
		sent, err := newCodec().Marshal(raw)
		if err != nil || len(sent) != 1 || &sent[0].ReadOnlyData()[0] != &raw[0] {
			t.Errorf("part %d is copied for the wire, %v", i, err)
		}
	}
	if total != routes {
		t.Errorf("%d routes, want %d", total, routes)
	}
	to := point{}
	to.history, to.revision = s.core.Revision()
	if u, at := s.updateSince(to); u != nil || at != to {
		t.Error("an update for a worker that knows all")
	}
	// Other messages are serialized as ever.
	probe := encodeProbe(core.Probe{Sequence: 7})
	slices, err := newCodec().Marshal(probe)
	if err != nil {
		t.Fatal(err)
	}
	var back ernicv1.SessionResponse
	if err := proto.Unmarshal(slices.Materialize(), &back); err != nil || back.GetProbe().GetSequence() != 7 {
		t.Errorf("%v, %v", &back, err)
	}
}
