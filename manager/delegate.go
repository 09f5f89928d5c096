// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"

	"google.golang.org/grpc"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// standbyService hands every call to the manager of the term under way.
type standbyService struct {
	ernicv1.UnimplementedManagerServiceServer
	s *Standby
}

// ListManagers is answered by managers that stand by too.
func (d *standbyService) ListManagers(context.Context, *ernicv1.ListManagersRequest) (*ernicv1.ListManagersResponse, error) {
	resp := &ernicv1.ListManagersResponse{}
	for _, c := range d.s.candidates() {
		resp.Managers = append(resp.Managers, encodeCandidate(c))
	}
	return resp, nil
}

func (d *standbyService) Session(stream grpc.BidiStreamingServer[ernicv1.SessionRequest, ernicv1.SessionResponse]) error {
	m, err := d.s.server()
	if err != nil {
		return err
	}
	return m.Session(stream)
}

func (d *standbyService) Relay(stream grpc.BidiStreamingServer[ernicv1.RelayRequest, ernicv1.RelayResponse]) error {
	m, err := d.s.server()
	if err != nil {
		return err
	}
	return m.Relay(stream)
}

func (d *standbyService) ListNodes(ctx context.Context, r *ernicv1.ListNodesRequest) (*ernicv1.ListNodesResponse, error) {
	m, err := d.s.server()
	if err != nil {
		return nil, err
	}
	return m.ListNodes(ctx, r)
}

func (d *standbyService) WatchNodes(r *ernicv1.WatchNodesRequest, stream grpc.ServerStreamingServer[ernicv1.WatchNodesResponse]) error {
	m, err := d.s.server()
	if err != nil {
		return err
	}
	return m.WatchNodes(r, stream)
}

func (d *standbyService) ListGids(ctx context.Context, r *ernicv1.ListGidsRequest) (*ernicv1.ListGidsResponse, error) {
	m, err := d.s.server()
	if err != nil {
		return nil, err
	}
	return m.ListGids(ctx, r)
}

func (d *standbyService) WatchGids(r *ernicv1.WatchGidsRequest, stream grpc.ServerStreamingServer[ernicv1.WatchGidsResponse]) error {
	m, err := d.s.server()
	if err != nil {
		return err
	}
	return m.WatchGids(r, stream)
}

func (d *standbyService) WatchEvents(r *ernicv1.WatchEventsRequest, stream grpc.ServerStreamingServer[ernicv1.WatchEventsResponse]) error {
	m, err := d.s.server()
	if err != nil {
		return err
	}
	return m.WatchEvents(r, stream)
}

func (d *standbyService) WatchMesh(r *ernicv1.WatchMeshRequest, stream grpc.ServerStreamingServer[ernicv1.WatchMeshResponse]) error {
	m, err := d.s.server()
	if err != nil {
		return err
	}
	return m.WatchMesh(r, stream)
}

func (d *standbyService) EvictNode(ctx context.Context, r *ernicv1.EvictNodeRequest) (*ernicv1.EvictNodeResponse, error) {
	m, err := d.s.server()
	if err != nil {
		return nil, err
	}
	return m.EvictNode(ctx, r)
}

func (d *standbyService) DrainNode(ctx context.Context, r *ernicv1.DrainNodeRequest) (*ernicv1.DrainNodeResponse, error) {
	m, err := d.s.server()
	if err != nil {
		return nil, err
	}
	return m.DrainNode(ctx, r)
}

func (d *standbyService) SetNodeLink(ctx context.Context, r *ernicv1.SetNodeLinkRequest) (*ernicv1.SetNodeLinkResponse, error) {
	m, err := d.s.server()
	if err != nil {
		return nil, err
	}
	return m.SetNodeLink(ctx, r)
}
