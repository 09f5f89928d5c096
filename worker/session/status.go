// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ernic-dev/ernic/fabric/identity"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

// Status returns how the worker stands to the manager and the mesh.
func (s *Session) Status() *ernicv1.GetStatusResponse {
	mesh := s.mesh.Load()
	nodes, routes := mesh.Len()
	st := &ernicv1.GetStatusResponse{
		Name:        s.cfg.Name,
		Instance:    s.cfg.Instance[:],
		Incarnation: s.cfg.Incarnation,
		Version:     s.cfg.Version,
		MeshNodes:   uint32(nodes),
		MeshRoutes:  uint32(routes),
		Claims:      s.Claims(),
		Report:      s.report(),
	}
	if mesh != empty {
		st.Mesh = &ernicv1.MeshPoint{History: mesh.History[:], Revision: mesh.Revision}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Manager = s.managers.current()
	if s.node != anyNode {
		st.NodeId = s.node
	}
	st.Session, st.Registrations = s.state, s.registrations
	if s.state == ernicv1.SessionState_SESSION_STATE_REGISTERED {
		st.SessionSince = timestamppb.New(s.since)
	} else if s.err != nil {
		st.SessionError = s.err.Error()
	}
	return st
}

// RegisterStatus makes a gRPC server answer ernic.v1.WorkerService with the status of the session.
func (s *Session) RegisterStatus(r grpc.ServiceRegistrar) {
	ernicv1.RegisterWorkerServiceServer(r, &statusServer{session: s})
}

// maxShownQPs bounds an answer to about ten megabytes.
const maxShownQPs = 4096

// statusCalls are the methods of a status listener and who may call them.
var statusCalls = map[string][]identity.Role{
	ernicv1.WorkerService_GetStatus_FullMethodName: {identity.Operator},
	ernicv1.WorkerService_GetStats_FullMethodName:  {identity.Operator},
	ernicv1.WorkerService_GetMesh_FullMethodName:   {identity.Operator},

	healthv1.Health_Check_FullMethodName: identity.Roles(),
	healthv1.Health_List_FullMethodName:  identity.Roles(),
	healthv1.Health_Watch_FullMethodName: identity.Roles(),

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      identity.Roles(),
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: identity.Roles(),
}

// Reflect lets those who may call anything ask ServeStatus which calls there are. It is called before that.
func (s *Session) Reflect() { s.reflect = true }

// ServeStatus answers for the status of the session on a listener of its own until ctx ends, and closes it. Options are
// added to those of the server, credentials for example.
func (s *Session) ServeStatus(ctx context.Context, l net.Listener, opts ...grpc.ServerOption) error {
	guard := identity.Guard{Allow: statusCalls, Refused: func(caller identity.Caller, method string, err error) {
		s.cfg.Log.Warn().Str("event", "call_refused").Str("caller", caller.String()).Str("method", method).Err(err).
			Msg("a call that the caller may not make")
	}}
	opts = append(guard.ServerOptions(), opts...)
	g := grpc.NewServer(append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(1 << 16),
		grpc.MaxConcurrentStreams(16),
		grpc.ConnectionTimeout(5 * time.Second),
	}, opts...)...)
	health := health.NewServer()
	healthv1.RegisterHealthServer(g, health)
	defer health.Shutdown()
	s.RegisterStatus(g)
	if s.reflect {
		reflection.Register(g)
	}
	// Not waited for: the end of the server waits for connections that have not finished their handshake.
	defer context.AfterFunc(ctx, func() {
		_ = l.Close()
		g.Stop()
	})()
	err := g.Serve(l)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("status listener %s: %w", l.Addr(), err)
}

type statusServer struct {
	ernicv1.UnimplementedWorkerServiceServer
	session *Session
}

func (s *statusServer) GetStatus(context.Context, *ernicv1.GetStatusRequest) (*ernicv1.GetStatusResponse, error) {
	return s.session.Status(), nil
}

func (s *statusServer) GetStats(_ context.Context, r *ernicv1.GetStatsRequest) (*ernicv1.GetStatsResponse, error) {
	if s.session.cfg.Stats == nil {
		return nil, status.Error(codes.Unimplemented, "this worker shows no counters")
	}
	qps := min(r.GetMaxQueuePairs(), maxShownQPs)
	return &ernicv1.GetStatsResponse{Sections: section.ToProto(s.session.cfg.Stats(int(qps)))}, nil
}

// GetMesh sends the view that the manager told last.
func (s *statusServer) GetMesh(_ *ernicv1.GetMeshRequest, stream grpc.ServerStreamingServer[ernicv1.GetMeshResponse]) error {
	for _, u := range s.session.base.Load().encode() {
		if err := stream.Send(&ernicv1.GetMeshResponse{Update: u}); err != nil {
			return err
		}
	}
	return nil
}
