// SPDX-License-Identifier: Apache-2.0

package site

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo answers every connection with what comes over it.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func TestCable_HoldsEverythingWhileItIsCut(t *testing.T) {
	c, err := newCable(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", c.Addr())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	send := func(conn net.Conn, s string) {
		t.Helper()
		if _, err := io.WriteString(conn, s); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(conn net.Conn, want string) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		b := make([]byte, len(want))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != want {
			t.Fatalf("got %q, %v; want %q", b, err, want)
		}
	}
	silent := func(conn net.Conn) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d bytes came over a cut cable, %v", n, err)
		}
	}
	old := dial()
	send(old, "before")
	expect(old, "before")

	c.Cut()
	c.Cut()
	send(old, "during")
	late := dial()
	send(late, "new")
	silent(old)
	silent(late)
	c.Mend()
	expect(old, "during")
	expect(late, "new")

	// Ends are told of each other's end, later if the cable is cut.
	c.Cut()
	gone := dial()
	gone.Close()
	c.Mend()
	c.Cut()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	_ = old.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := old.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the end of the cable is not the end of its connections: %v", err)
	}
}
