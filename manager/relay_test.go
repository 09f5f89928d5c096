// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/fabric/identity"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// TestP2_ARelayIsForWhoItIsMeantForOnly calls and answers as workers that may not.
func TestP2_ARelayIsForWhoItIsMeantForOnly(t *testing.T) {
	m := startSecured(t)
	register := func(name string) ernicv1.ManagerService_SessionClient {
		t.Helper()
		s, err := ernicv1.NewManagerServiceClient(m.dial(identity.Worker, name)).Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		instance := [16]byte{}
		copy(instance[:], name)
		err = s.Send(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Register{Register: &ernicv1.Register{
			Protocol: &ernicv1.VersionRange{Min: 1, Max: 1}, NodeId: 0xFFFFFFFF, Instance: instance[:], Name: name, Address: name + ".test:7000",
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := s.Recv(); err != nil || resp.GetRegistered() == nil {
			t.Fatalf("registration of %s: %v, %v", name, resp, err)
		}
		return s
	}
	register("one")
	two := register("two")
	outcome := func(holder string, first *ernicv1.RelayRequest) error {
		t.Helper()
		s, err := ernicv1.NewManagerServiceClient(m.dial(identity.Worker, holder)).Relay(t.Context())
		if err != nil {
			return err
		}
		_ = s.Send(first)
		_, err = s.Recv()
		return err
	}
	call := func(from, to uint32) *ernicv1.RelayRequest {
		return &ernicv1.RelayRequest{Message: &ernicv1.RelayRequest_Call{Call: &ernicv1.RelayCall{From: from, To: to}}}
	}
	answer := func(token []byte) *ernicv1.RelayRequest {
		return &ernicv1.RelayRequest{Message: &ernicv1.RelayRequest_Answer{Answer: token}}
	}
	for name, tc := range map[string]struct {
		holder string
		first  *ernicv1.RelayRequest
		code   codes.Code
		want   string
	}{
		"in the name of another": {"one", call(2, 1), codes.PermissionDenied, "node 2 is not the worker that calls"},
		"by a stranger":          {"stranger", call(1, 2), codes.PermissionDenied, "node 1 is not"},
		"as nobody":              {"one", call(9, 2), codes.PermissionDenied, "node 9 is not"},
		"to nobody":              {"one", call(1, 9), codes.NotFound, "no node 9"},
		"to the manager":         {"one", call(1, 0), codes.NotFound, "no node 0"},
		"nothing":                {"one", &ernicv1.RelayRequest{}, codes.InvalidArgument, "neither a call nor an answer"},
		"data first":             {"one", &ernicv1.RelayRequest{Message: &ernicv1.RelayRequest_Data{}}, codes.InvalidArgument, "neither"},
		"an answer to nobody":    {"two", answer(make([]byte, 16)), codes.NotFound, "nobody calls"},
		"a short token":          {"two", answer([]byte{1}), codes.InvalidArgument, "1 bytes"},
	} {
		if err := outcome(tc.holder, tc.first); status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A call whose answer another one gives: it has none, and ends after a while.
	failed := make(chan error, 1)
	go func() { failed <- outcome("one", call(1, 2)) }()
	var token []byte
	for token == nil {
		resp, err := two.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if offer := resp.GetRelay(); offer != nil {
			if token = offer.GetToken(); offer.GetFrom() != 1 || len(token) != 16 {
				t.Fatalf("offer %v", offer)
			}
		}
	}
	if err := outcome("one", answer(token)); status.Code(err) != codes.NotFound {
		t.Errorf("an answer of another worker: %v", err)
	}
	if err := <-failed; status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "node 2 did not answer") {
		t.Errorf("a call without an answer: %v", err)
	}
	if err := outcome("two", answer(token)); status.Code(err) != codes.NotFound {
		t.Errorf("an answer that comes too late: %v", err)
	}
	if got := m.server.Counters(); got["relays_open"] != 0 || got["relay_opened_total"] != 0 || got["relay_refused_total"] != 12 {
		t.Errorf("counters %v", got)
	}
}
