// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// TestHealth_IsAnsweredBesideTheLink asks the listener of a node how it is, over
// and over, while the node has a link.
func TestHealth_IsAnsweredBesideTheLink(t *testing.T) {
	for _, reflects := range []bool{false, true} {
		b := newBed(t)
		sender := b.node(1, &station{}, patient)
		asked := b.node(2, &station{}, func(o *Options) { patient(o); o.Reflection = reflects })
		connect(t, sender, asked)
		for range 3 {
			cc, err := grpc.NewClient("passthrough:///"+asked.opts.Listener.Addr().String(),
				grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			for range 5 {
				r, err := healthv1.NewHealthClient(cc).Check(ctx, &healthv1.HealthCheckRequest{})
				if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
					t.Fatalf("%v, %v", r, err)
				}
			}
			var names []string
			s, err := reflectionv1.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
			if err == nil {
				_ = s.Send(&reflectionv1.ServerReflectionRequest{
					MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
				})
				var r *reflectionv1.ServerReflectionResponse
				r, err = s.Recv()
				for _, found := range r.GetListServicesResponse().GetService() {
					names = append(names, found.GetName())
				}
			}
			if reflects != slices.Contains(names, serviceName) || !reflects && status.Code(err) != codes.Unimplemented {
				t.Errorf("reflection: %v, %v", names, err)
			}
			cancel()
			_ = cc.Close()
		}
		if s := to(sender, 2); s.Lanes != sender.opts.Lanes || s.Reconnects != 0 {
			t.Errorf("the link has %d lanes after %d reconnects", s.Lanes, s.Reconnects)
		}
	}
}
