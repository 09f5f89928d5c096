// SPDX-License-Identifier: Apache-2.0

// Package standby runs several managers that share their state in a real etcd, with real workers and traffic between their
// guests, and takes the managers and etcd away from them.
//
//	guest 1 --- ernic-worker 1 ===== ernic-worker 2 --- guest 2
//	                  \    \         /    /
//	                   \    ernic-manager b       one leads,
//	                    ernic-manager a           the other stands by
//	                          \      /
//	                            etcd
package standby
