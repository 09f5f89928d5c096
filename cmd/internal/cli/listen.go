// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// CheckListen refuses an address that other hosts can reach unless connections to it are protected, or the caller says
// that they need not be.
func CheckListen(address string, protected, insecure bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return Usagef("--listen %q is not host:port: %w", address, err)
	}
	if protected || insecure || isLoopback(host) {
		return nil
	}
	return Usagef("--listen %s can be reached by other hosts in the clear: give --tls-cert, --tls-key and --tls-ca, or --insecure if that is meant", address)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Listen opens a TCP listener for --listen.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		return l, nil
	}
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		switch {
		case errors.Is(sys.Err, syscall.EADDRINUSE):
			return nil, fmt.Errorf("--listen %s: another program listens there", address)
		case errors.Is(sys.Err, syscall.EADDRNOTAVAIL):
			return nil, fmt.Errorf("--listen %s: this host does not have the address", address)
		}
	}
	return nil, fmt.Errorf("--listen %s: %w", address, err)
}
