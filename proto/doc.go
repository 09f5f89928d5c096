// SPDX-License-Identifier: Apache-2.0

// Package proto holds the wire between the programs: protobuf definitions under ernic/v1 and the Go generated from
// them, which is committed beside its source. After a change to a .proto file run make generate; continuous integration
// refuses a tree in which that makes a difference.
package proto
