// SPDX-License-Identifier: Apache-2.0

package vfioclient

import (
	"bytes"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func FuzzVersionReply(f *testing.F) {
	f.Add([]byte(goodVersion))
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte("\x00\x00\x00\x00{\"capabilities\":{\"max_msg_fds\":-1}}\x00"))
	f.Add([]byte("\x00\x00\x00\x00{\"capabilities\":null}\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		caps, err := parseVersion(b, 198)
		if err == nil && (caps.MaxMsgFDs < 0 || caps.MaxMsgFDs > 16 || caps.MaxDataXfer < 1 || caps.MaxDataXfer > maxTransferSeen || caps.MaxDMAMaps < 0) {
			t.Errorf("accepted %+v", caps)
		}
	})
}

// FuzzServerStream feeds a session what a server might send. The session ends
// or goes on; it never hangs, and nobody waits for ever.
func FuzzServerStream(f *testing.F) {
	good := message(2, cmdRegionRead, flagReply, 0, append(regionHead(0, 8, 4), 1, 2, 3, 4))
	f.Add(good)
	f.Add(append(message(7, cmdDMARead, 0, 0, make([]byte, 16)), good...))
	f.Add(message(2, cmdRegionRead, flagReply|flagError, 22, nil))
	f.Add([]byte{1, 0, 9, 0, 15, 0, 0, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		var conns [2]*net.UnixConn
		for i, fd := range fds {
			file := os.NewFile(uintptr(fd), "pair")
			c, err := net.FileConn(file)
			if err != nil {
				t.Fatal(err)
			}
			file.Close()
			conns[i] = c.(*net.UnixConn)
		}
		defer conns[1].Close()
		server := &peer{conn: conns[1]}
		go func() {
			if h, _, err := server.read(); err == nil {
				server.write(message(h.id, h.cmd, flagReply, 0, []byte(goodVersion)))
			}
		}()
		c, err := New(conns[0], Options{Windows: []Window{{Size: pageSize}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.timeout = 50 * time.Millisecond
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			err := c.ReadRegion(0, 8, make([]byte, 4))
			if err == nil && !bytes.Contains(stream, regionHead(0, 8, 4)) {
				t.Error("a read succeeded without a reply to it")
			}
		}()
		if _, err := conns[1].Write(stream); err != nil {
			t.Log(err) // the session may have ended before
		}
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("a request waits for ever")
		}
	})
}
