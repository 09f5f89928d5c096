// SPDX-License-Identifier: Apache-2.0

// Package faults takes parts of an installation away from under real guests and
// looks what their programs see of it: the manager, the link between the
// workers, a whole worker. The guests' Ethernet and RDMA both go over the mesh,
// and every worker is reached by a cable that can be cut.
//
//	guest 1 -- worker 1 --.            .-- worker 2 -- guest 2
//	               |      cable 1  cable 2     |
//	               |         '--------'        |
//	               '--------- manager ---------'
package faults
