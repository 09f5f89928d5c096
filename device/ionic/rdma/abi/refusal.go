// SPDX-License-Identifier: Apache-2.0

package abi

import "fmt"

// Refusal is why an admin command failed: the status the driver gets and the
// reason for people.
type Refusal struct {
	Status AdminStatus
	Reason string
}

func (r *Refusal) Error() string { return r.Status.String() + ": " + r.Reason }

// Refuse returns a *Refusal.
func Refuse(s AdminStatus, format string, a ...any) error {
	return &Refusal{Status: s, Reason: fmt.Sprintf(format, a...)}
}
