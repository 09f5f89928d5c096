// SPDX-License-Identifier: Apache-2.0

//go:build race

package session_test

import "time"

func init() {
	// The race detector keeps track of 8,128 goroutines at most, and with thousands that come and go it failed a check of
	// its own once in ten runs on a busy machine.
	manyWorkers = 60
	propagationLimit = time.Second
	returnLimit = 15 * time.Second
}
