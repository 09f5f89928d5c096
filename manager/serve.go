// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/ernic-dev/ernic/fabric/identity"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// LeaderService is the name under which the health service tells whether a manager leads. The empty name stands for the
// process.
const LeaderService = "ernic.v1.ManagerService"

// front is the gRPC server of a manager on one listener.
type front struct {
	server *grpc.Server
	health *health.Server
	conns  *trackedListener
}

func newFront(l net.Listener, service ernicv1.ManagerServiceServer, guard identity.Guard, cfg *Config, opts []grpc.ServerOption) *front {
	f := &front{health: health.NewServer(), conns: track(l)}
	interval := max(time.Second, cfg.Core.Defaults().HealthInterval)
	f.server = grpc.NewServer(append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxConcurrentStreams(64),
		// A connection that says nothing, or never asks for anything, does not stay.
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 2 * time.Minute,
			// A worker whose host has moved has left its connection without a word.
			Time:    3 * interval,
			Timeout: interval,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}, append(guard.ServerOptions(), opts...)...)...)
	ernicv1.RegisterManagerServiceServer(f.server, service)
	healthv1.RegisterHealthServer(f.server, f.health)
	if cfg.Reflection {
		reflection.Register(f.server)
	}
	return f
}

// leads sets what the health service says of LeaderService.
func (f *front) leads(yes bool) {
	state := healthv1.HealthCheckResponse_NOT_SERVING
	if yes {
		state = healthv1.HealthCheckResponse_SERVING
	}
	f.health.SetServingStatus(LeaderService, state)
}

// serve answers until ctx ends or done is closed, which has to follow the end of ctx, and then returns within about
// drainTime. It closes the listener.
func (f *front) serve(ctx context.Context, done <-chan struct{}) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
		case <-done:
		}
		f.health.Shutdown()
		<-done
		force := time.AfterFunc(drainTime, func() {
			f.conns.closeAll()
			f.server.Stop()
		})
		defer force.Stop()
		f.server.GracefulStop()
	}()
	if err := f.server.Serve(f.conns); err != nil && ctx.Err() == nil {
		return fmt.Errorf("listener %s: %w", f.conns.Addr(), err)
	}
	<-stopped
	return nil
}
