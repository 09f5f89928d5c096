// SPDX-License-Identifier: Apache-2.0

// Package standby runs what goes on when the usual way is closed, with real workers and traffic between their guests. It runs
// several managers that share their state in a real etcd, and takes managers and etcd away; and workers that only the manager
// reaches, so that it has to relay.
//
//	guest 1 --- ernic-worker 1 ===== ernic-worker 2 --- guest 2
//	                  \    \         /    /
//	                   \    ernic-manager b       one leads,
//	                    ernic-manager a           the other stands by
//	                          \      /
//	                            etcd
package standby
