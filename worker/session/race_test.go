// SPDX-License-Identifier: Apache-2.0

//go:build race

package session_test

import "time"

func init() {
	// The race detector keeps track of 8,128 goroutines at most.
	manyWorkers = 200
	propagationLimit = time.Second
	returnLimit = 15 * time.Second
}
