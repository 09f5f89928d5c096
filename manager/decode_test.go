// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// FuzzSessionRequest lets a worker send anything, first on a new session and then on one that is registered.
func FuzzSessionRequest(f *testing.F) {
	seed := func(m *ernicv1.SessionRequest) {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	gid := make([]byte, 16)
	gid[0] = 0xfe
	seed(&ernicv1.SessionRequest{})
	seed(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Register{Register: &ernicv1.Register{
		Protocol: &ernicv1.VersionRange{Min: 1, Max: 1}, NodeId: 0xFFFFFFFF, Instance: gid, Name: "n", Address: "h:1",
	}}})
	seed(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Register{Register: &ernicv1.Register{Address: "[::1]:99999"}}})
	seed(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Heartbeat{Heartbeat: &ernicv1.Heartbeat{NodeId: 1, Report: &ernicv1.NodeReport{Links: 1}}}})
	seed(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Claims{Claims: &ernicv1.ClaimUpdate{
		NodeId: 1, Claim: []*ernicv1.Claim{{Gid: gid, Source: 300}, {Gid: gid, Source: 1}}, Release: [][]byte{gid},
	}}})
	seed(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_ProbeAnswer{ProbeAnswer: &ernicv1.ProbeAnswer{Sequence: 1}}})
	seed(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Leave{Leave: &ernicv1.Leave{}}})
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &ernicv1.SessionRequest{}
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		now := time.Unix(0, 0)
		c := core.New(core.Config{}, now, core.State{})
		c.Step(now, core.Register{Session: 1, Node: core.AnyNode, Instance: core.Instance{1}, Protocol: core.Versions{Min: 1, Max: 1}}, nil)
		for _, session := range []core.SessionID{1, 2} {
			ev, err := decode(session, m)
			if err != nil || ev == nil {
				continue
			}
			if r, ok := ev.(core.Register); ok && (checkText(r.Name, maxName) != nil || checkAddress(r.Addr) != nil) {
				t.Fatalf("registration %+v", r)
			}
			for _, e := range c.Step(now, ev, nil) {
				_ = e.String()
			}
		}
		for _, cl := range c.Claims(core.ClaimKey{}, 0) {
			if cl.GID.Check() != nil || !cl.Source.Valid() {
				t.Fatalf("claim %+v", cl)
			}
		}
	})
}

func FuzzPageToken(f *testing.F) {
	f.Add("")
	f.Add("AAAA")
	f.Add(encodeToken(core.ClaimKey{GID: core.GID{1}, Node: 7}))
	f.Fuzz(func(t *testing.T, token string) {
		key, err := decodeToken(token)
		if err != nil || token == "" {
			return
		}
		if again, err := decodeToken(encodeToken(key)); err != nil || again != key {
			t.Fatalf("%q gives %v, which gives %v and %v", token, key, again, err)
		}
	})
}
