// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// ManagerAddrs completes the addresses of managers that share a state, as a user writes them: separated by commas, each
// as ManagerAddr takes it.
func ManagerAddrs(s string) ([]string, error) {
	var all []string
	for _, part := range strings.Split(s, ",") {
		address, err := ManagerAddr(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all, nil
}

// StandbyError says that a manager does not lead.
type StandbyError struct {
	Manager string
	Leader  string // host:port of the one that does; empty: none that it knows of
	Text    string
}

func (e *StandbyError) Error() string { return fmt.Sprintf("the manager at %s: %s", e.Manager, e.Text) }

// AsStandby returns what the status of a call to a manager says if that one stands by, and nil otherwise.
func AsStandby(manager string, err error) *StandbyError {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.Unavailable {
		return nil
	}
	for _, d := range st.Details() {
		if standby, ok := d.(*ernicv1.Standby); ok {
			e := &StandbyError{Manager: manager, Text: st.Message()}
			// An address that is none helps nobody.
			if leader, err := ManagerAddr(standby.GetLeaderAddress()); err == nil {
				e.Leader = leader
			}
			return e
		}
	}
	return nil
}

// managers says which manager to turn to: the one that answered last, one that another named, or the next of the list.
type managers struct {
	list []string
	at   int
	// named is a manager that is not in the list but leads, as one in the list said; empty: none.
	named string
	// sent is set while the current one was named by another: whom that one names in turn is not believed, or two
	// managers that name each other would keep the worker busy.
	sent bool
	// tried counts the attempts that failed since the last pause.
	tried int
}

func (m *managers) current() string {
	if m.named != "" {
		return m.named
	}
	return m.list[m.at]
}

// answered notes that the current one leads.
func (m *managers) answered() { m.tried, m.sent = 0, false }

// failed moves on after an attempt at the current one, which named leader, or nobody. It reports whether the next attempt
// may follow at once.
func (m *managers) failed(leader string) bool {
	if leader != "" && leader != m.current() && !m.sent {
		m.sent, m.named = true, ""
		if i := slices.Index(m.list, leader); i >= 0 {
			m.at = i
		} else {
			m.named = leader
		}
		return true
	}
	if m.named == "" {
		m.at = (m.at + 1) % len(m.list)
	}
	m.named, m.sent = "", false
	m.tried++
	if m.tried < len(m.list) {
		return true
	}
	m.tried = 0
	return false
}

// onHost completes an address without a host by that of a manager.
func onHost(address, manager string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "" {
		return address
	}
	if host, _, err = net.SplitHostPort(manager); err != nil {
		return address
	}
	return net.JoinHostPort(host, port)
}
