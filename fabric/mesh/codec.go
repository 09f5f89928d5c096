// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
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

// codec moves slices between gRPC and this package: what it marshals is a
// marshaler, what it unmarshals into an *rxMessage. The messages of other
// services on the listener are protobuf's.
type codec struct{}

// other is the codec of those.
var other = encoding.GetCodecV2(protocodec.Name)

type marshaler interface{ buffers() mem.BufferSlice }

// Marshal returns the message's own buffers; gRPC frees each once it is sent.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(marshaler)
	if !ok {
		return other.Marshal(v)
	}
	return m.buffers(), nil
}

// Unmarshal takes references to the buffers into the message.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*rxMessage)
	if !ok {
		return other.Unmarshal(data, v)
	}
	m.take(data)
	return nil
}

// Name is the content subtype on the wire.
func (codec) Name() string { return "ernic" }

// rawBytes is a small message of its own bytes.
type rawBytes []byte

func (r rawBytes) buffers() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(r)} }
