// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Modes of the other end of TCP.
const (
	tcpSink = "sink" // takes messages of a size, copies each, and answers the end of the stream
	tcpEcho = "echo" // sends every 64-byte message back
)

const pingSize = 64

// tcpConn is a connection to a TCP peer process.
type tcpConn struct {
	net.Conn
	cmd *exec.Cmd
}

// dialTCP starts a peer process and connects to it.
func dialTCP(ctx context.Context, mode string) (*tcpConn, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-tcp-peer", mode)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("TCP peer: %w", err)
	}
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		return nil, errors.Join(fmt.Errorf("TCP peer: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return &tcpConn{conn, cmd}, nil
}

func (c *tcpConn) close() error { return errors.Join(c.Close(), c.cmd.Wait()) }

// tcpPeer is the other end: it says where it listens and serves one connection.
func tcpPeer(mode string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if mode == tcpEcho {
		return echo(conn)
	}
	size, err := strconv.Atoi(strings.TrimPrefix(mode, tcpSink+":"))
	if err != nil || size < 1 {
		return fmt.Errorf("TCP peer: mode %q", mode)
	}
	return sink(conn, size)
}

func echo(conn net.Conn) error {
	b := make([]byte, pingSize)
	for {
		if _, err := io.ReadFull(conn, b); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := conn.Write(b); err != nil {
			return err
		}
	}
}

// sink reads messages into a buffer and copies each into another one, which is
// as large as the memory that the RDMA writes go to. A message whose first byte
// is 1 is answered with one byte.
func sink(conn net.Conn, size int) error {
	b := make([]byte, size)
	memory := make([]byte, max(bandwidthMemory/size, 1)*size)
	for at := 0; ; at = (at + size) % len(memory) {
		if _, err := io.ReadFull(conn, b); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		copy(memory[at:], b)
		if b[0] == 1 {
			if _, err := conn.Write(b[:1]); err != nil {
				return err
			}
		}
	}
}

// tcpBandwidth streams messages for a while and returns bytes per second, until
// the receiver has copied the last one.
func tcpBandwidth(conn net.Conn, size int, d time.Duration) (float64, error) {
	b := make([]byte, size)
	start := time.Now()
	sent := 0
	for time.Since(start) < d {
		for range max(1, 256<<10/size) {
			if _, err := conn.Write(b); err != nil {
				return 0, err
			}
			sent += size
		}
	}
	b[0] = 1
	if _, err := conn.Write(b); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(conn, b[:1]); err != nil {
		return 0, err
	}
	return float64(sent+size) / time.Since(start).Seconds(), nil
}

// tcpPing measures round trips for a while.
func tcpPing(conn net.Conn, d time.Duration) ([]time.Duration, error) {
	b := make([]byte, pingSize)
	var out []time.Duration
	for start := time.Now(); time.Since(start) < d; {
		t := time.Now()
		if _, err := conn.Write(b); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, b); err != nil {
			return nil, err
		}
		out = append(out, time.Since(t))
	}
	return out, nil
}
