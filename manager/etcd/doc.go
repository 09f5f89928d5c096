// SPDX-License-Identifier: Apache-2.0

// Package etcd keeps the state of a mesh in etcd, so that several managers share it, and decides which of them leads.
//
//	/prefix/meta                        {"schema": 1, "history": 32 hex digits, "revision": 42, "torn": false}
//	/prefix/nodes/00000007              a node, as package record writes it; the id has 8 hexadecimal digits
//	/prefix/claims/00000007/fe80...01   a claim; the GID has 32 hexadecimal digits
//	/prefix/managers/694d...            a manager that takes part, for as long as its lease lives; the oldest one leads
//
// Every write is a transaction that compares the creation of the writer's own key under managers. A manager whose lease
// has run out, because it stood still or was cut off, has no such key any more: whatever it still tries to write is
// refused by etcd, whatever its own clock says.
//
// etcd takes 128 operations in one transaction. Changes that need more are written in several, and meta says that they are
// torn until the last: whoever reads them then begins a new history, so that no worker takes the view it holds for this one.
package etcd
