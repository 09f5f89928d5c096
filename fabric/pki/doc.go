// SPDX-License-Identifier: Apache-2.0

// Package pki is the certificate authority of a small site: one directory with one key that signs, and the certificates
// of the manager, the workers and the operators beside it.
//
//	DIR/ca.crt                 everybody gets a copy; may hold old and new authority during a change
//	DIR/ca.key                 0600, stays where it is
//	DIR/worker-host7.crt       0644
//	DIR/worker-host7.key       0600, goes to the host with the certificate
//
// Keys are ECDSA P-256. What a certificate says of its holder is described in package identity.
package pki
