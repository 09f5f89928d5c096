// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

const (
	serviceName = "ernic.v1.FabricService"
	methodName  = "Exchange"
	methodPath  = "/" + serviceName + "/" + methodName
)

var streamDesc = grpc.StreamDesc{StreamName: methodName, ServerStreams: true, ClientStreams: true}

// serviceDesc is the declaration of FabricService without the protobuf
// messages: they have no fields, the codec carries bytes.
var serviceDesc = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*exchanger)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName: methodName, ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, s grpc.ServerStream) error { return srv.(exchanger).exchange(s) },
	}},
	Metadata: "ernic/v1/fabric.proto",
}

type exchanger interface {
	exchange(s grpc.ServerStream) error
}

// codec moves slices between gRPC and this package. What it marshals must be a
// marshaler, what it unmarshals into an *rxMessage.
type codec struct{}

type marshaler interface{ buffers() mem.BufferSlice }

// Marshal returns the message's own buffers; gRPC frees each once it is sent.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(marshaler)
	if !ok {
		return nil, fmt.Errorf("mesh: cannot send a %T", v)
	}
	return m.buffers(), nil
}

// Unmarshal takes references to the buffers into the message.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*rxMessage)
	if !ok {
		return fmt.Errorf("mesh: cannot receive a %T", v)
	}
	m.take(data)
	return nil
}

// Name is the content subtype on the wire.
func (codec) Name() string { return "ernic" }

// rawBytes is a small message of its own bytes.
type rawBytes []byte

func (r rawBytes) buffers() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(r)} }
