// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Guard says which roles may make which calls, by the full name of the method ("/ernic.v1.ManagerService/ListNodes"). A
// method that is not listed is nobody's. On a connection in the clear there are no roles and every call is let through:
// whoever serves such connections has said that all who reach the port are trusted.
type Guard struct {
	Allow map[string][]Role
	// Refused is told of every call that was not let through; nil: nobody is.
	Refused func(Caller, string, error)
}

// Caller is who makes a call.
type Caller struct {
	Identity Identity // zero on a connection in the clear
	Address  string
}

// String names the caller and where it is.
func (c Caller) String() string {
	if c.Identity == (Identity{}) {
		return "somebody at " + c.Address
	}
	return c.Identity.String() + " at " + c.Address
}

// OfCall returns who makes the call of a context. An error means that the connection is protected and the certificate
// nobody's.
func OfCall(ctx context.Context) (Caller, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Caller{}, errors.New("the call has no connection")
	}
	c := Caller{Address: "an unknown address"}
	if p.Addr != nil {
		c.Address = p.Addr.String()
	}
	id, _, err := OfConnection(p.AuthInfo)
	c.Identity = id
	return c, err
}

// Check says why the call of a context to a method is not allowed, nil if it is.
func (g Guard) Check(ctx context.Context, method string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.Internal, "the call has no connection")
	}
	id, protected, err := OfConnection(p.AuthInfo)
	switch {
	case !protected:
		return nil
	case err != nil:
		err = status.Error(codes.Unauthenticated, err.Error())
	case !slices.Contains(g.Allow[method], id.Role):
		err = status.Errorf(codes.PermissionDenied, "%s may not call %s", id, method)
	default:
		return nil
	}
	if g.Refused != nil {
		caller, _ := OfCall(ctx)
		g.Refused(caller, method, err)
	}
	return err
}

// ServerOptions make a gRPC server ask the guard before every call.
func (g Guard) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := g.Check(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := g.Check(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return next(srv, stream)
		}),
	}
}
