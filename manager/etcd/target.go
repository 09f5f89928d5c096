// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Schemes of a target.
const (
	schemePlain = "etcd://"
	schemeTLS   = "etcds://"
)

// DefaultPrefix is where the state is when a target does not say.
const DefaultPrefix = "/ernic"

// Target says where the state is.
type Target struct {
	// TLS: the connection is protected.
	TLS       bool
	Endpoints []string // host:port
	Prefix    string   // begins with a slash, and does not end with one
}

// IsTarget reports whether s names a state in etcd.
func IsTarget(s string) bool {
	return strings.HasPrefix(s, schemePlain) || strings.HasPrefix(s, schemeTLS)
}

// ParseTarget reads etcd://host:port[,host:port]...[/prefix], or etcds:// for a protected connection.
func ParseTarget(s string) (Target, error) {
	rest, plain := strings.CutPrefix(s, schemePlain)
	if !plain {
		var ok bool
		if rest, ok = strings.CutPrefix(s, schemeTLS); !ok {
			return Target{}, fmt.Errorf("%q does not begin with %s or %s", s, schemePlain, schemeTLS)
		}
	}
	t := Target{TLS: !plain}
	hosts, prefix, _ := strings.Cut(rest, "/")
	for _, e := range strings.Split(hosts, ",") {
		host, port, err := net.SplitHostPort(e)
		if err != nil {
			return Target{}, fmt.Errorf("%q: %w", s, err)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
			return Target{}, fmt.Errorf("%q: %q is not host:port", s, e)
		}
		t.Endpoints = append(t.Endpoints, e)
	}
	prefix = strings.Trim(prefix, "/")
	for _, r := range prefix {
		if r <= ' ' || r > '~' {
			return Target{}, fmt.Errorf("%q: only printable ASCII characters may stand in a prefix", s)
		}
	}
	if t.Prefix = DefaultPrefix; prefix != "" {
		t.Prefix = "/" + prefix
	}
	return t, nil
}

// String returns what ParseTarget reads.
func (t Target) String() string {
	scheme := schemePlain
	if t.TLS {
		scheme = schemeTLS
	}
	return scheme + strings.Join(t.Endpoints, ",") + t.Prefix
}
