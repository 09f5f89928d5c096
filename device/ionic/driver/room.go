// SPDX-License-Identifier: Apache-2.0

package driver

import "sync"

// room lets posters of a full ring wait for a completion, or for the end of the
// device. Its methods are called with the ring's lock held.
type room struct {
	waiting bool
	made    chan struct{}
}

// await lets go of the lock until wake is called or the device has failed.
func (r *room) await(lock *sync.Mutex, failed <-chan struct{}) {
	if !r.waiting {
		r.waiting, r.made = true, make(chan struct{})
	}
	made := r.made
	lock.Unlock()
	select {
	case <-made:
	case <-failed:
	}
	lock.Lock()
}

// wake wakes all who wait.
func (r *room) wake() {
	if r.waiting {
		r.waiting = false
		close(r.made)
	}
}
