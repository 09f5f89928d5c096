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
// that they need not be. flag is the name of the flag, without dashes.
func CheckListen(flag, address string, protected, insecure bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return Usagef("--%s %q is not host:port: %w", flag, address, err)
	}
	if protected || insecure || isLoopback(host) {
		return nil
	}
	return Usagef("--%s %s can be reached by other hosts in the clear: give --tls-cert, --tls-key and --tls-ca, or --insecure if that is meant", flag, address)
}

// IsLoopback reports whether only this host can reach host:port.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && isLoopback(host)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Listen opens a TCP listener for a flag.
func Listen(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		return l, nil
	}
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		switch {
		case errors.Is(sys.Err, syscall.EADDRINUSE):
			return nil, fmt.Errorf("--%s %s: another program listens there", flag, address)
		case errors.Is(sys.Err, syscall.EADDRNOTAVAIL):
			return nil, fmt.Errorf("--%s %s: this host does not have the address", flag, address)
		}
	}
	return nil, fmt.Errorf("--%s %s: %w", flag, address, err)
}
