// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"sync/atomic"

	"github.com/ernic-dev/ernic/manager/core"
)

// counters count since the manager started.
type counters struct {
	notes         [core.NoteKinds]atomic.Uint64
	sessions      atomic.Uint64
	silent        atomic.Uint64 // connections that never registered
	unauthorized  atomic.Uint64 // calls that their callers may not make
	storeFailures atomic.Uint64
	commits       atomic.Uint64
	meshUpdates   atomic.Uint64
	meshSnapshots atomic.Uint64
	relays        atomic.Uint64 // connections of workers that went by way of the manager
	relaysRefused atomic.Uint64
	relayedBytes  atomic.Uint64
}

// Counters returns what was counted since the manager started, under stable names, and the gauges gid_conflicts (GIDs
// that several live nodes claim now), nodes, relays_open and revision.
func (s *Server) Counters() map[string]uint64 {
	m := map[string]uint64{
		"session_opened_total":        s.counters.sessions.Load(),
		"session_unregistered_total":  s.counters.silent.Load(),
		"call_refused_total":          s.counters.unauthorized.Load(),
		"store_failure_total":         s.counters.storeFailures.Load(),
		"store_commit_total":          s.counters.commits.Load(),
		"mesh_update_sent_total":      s.counters.meshUpdates.Load(),
		"mesh_update_snapshots_total": s.counters.meshSnapshots.Load(),
		"relay_opened_total":          s.counters.relays.Load(),
		"relay_refused_total":         s.counters.relaysRefused.Load(),
		"relay_bytes_total":           s.counters.relayedBytes.Load(),
		"relays_open":                 uint64(s.relays.open()),
	}
	for k := range core.NoteKinds {
		m[k.String()+"_total"] = s.counters.notes[k].Load()
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	m["gid_conflicts"] = uint64(s.core.Conflicts())
	m["nodes"] = uint64(s.core.Len())
	_, m["revision"] = s.core.Revision()
	return m
}
