// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// wire is a connection with its two ends.
type wire struct {
	conns   [2]net.Conn
	streams [2]Stream
}

func newWire(t testing.TB, a, b net.Conn) *wire {
	t.Helper()
	w := &wire{conns: [2]net.Conn{a, b}}
	for i, c := range w.conns {
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		w.streams[i] = s
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return w
}

func overTCP(t testing.TB) *wire { return over(t, "tcp", "127.0.0.1:0") }

func overUnix(t testing.TB) *wire { return over(t, "unix", filepath.Join(t.TempDir(), "s")) }

func over(t testing.TB, network, address string) *wire {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return newWire(t, a, b)
}

func overPipe(t testing.TB) *wire {
	a, b := net.Pipe()
	return newWire(t, a, b)
}

// cut divides b into pieces of random length, some of them empty.
func cut(r *rand.Rand, b []byte, longest int) [][]byte {
	var v [][]byte
	for len(b) > 0 {
		n := min(r.IntN(longest+1), len(b))
		v = append(v, b[:n:n])
		b = b[n:]
	}
	return v
}

func TestStream_KeepsBytesHoweverTheyAreCut(t *testing.T) {
	for name, over := range map[string]func(testing.TB) *wire{"tcp": overTCP, "unix": overUnix, "pipe": overPipe} {
		t.Run(name, func(t *testing.T) {
			w := over(t)
			r := rand.New(rand.NewPCG(1, 2))
			// More than the buffers of a socket hold, so that writes park.
			sent := make([]byte, 16<<20)
			for i := range sent {
				sent[i] = byte(r.Uint32())
			}
			failed := make(chan error, 1)
			go func() {
				r := rand.New(rand.NewPCG(3, 4))
				for rest := sent; len(rest) > 0; {
					n := min(1+r.IntN(1<<20), len(rest))
					if err := w.streams[0].Writev(cut(r, rest[:n], 20000)); err != nil {
						failed <- err
						return
					}
					rest = rest[n:]
				}
				failed <- w.conns[0].Close()
			}()
			got := make([]byte, len(sent)+1)
			at := 0
			for {
				v := cut(r, got[at:min(at+1+r.IntN(1<<20), len(got))], 20000)
				for len(v[0]) == 0 {
					v = v[1:]
				}
				n, err := w.streams[1].Readv(v)
				at += n
				if err == io.EOF {
					break
				}
				if err != nil || n == 0 {
					t.Fatalf("%d bytes, %v", n, err)
				}
			}
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got[:at], sent) {
				t.Fatalf("%d bytes arrived of %d, or other ones", at, len(sent))
			}
		})
	}
}

func TestReadv_EndsWithTheConnection(t *testing.T) {
	w := overTCP(t)
	b := make([]byte, 10)
	if n, err := w.streams[0].Readv([][]byte{b[:0]}); err == nil {
		t.Errorf("reading into nothing: %d bytes", n)
	}
	w.conns[0].SetReadDeadline(time.Unix(1, 0))
	if n, err := w.streams[0].Readv([][]byte{b}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %d bytes, %v", n, err)
	}
	w.conns[0].Close()
	if n, err := w.streams[0].Readv([][]byte{b}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed on this side: %d bytes, %v", n, err)
	}
	if n, err := w.streams[1].Readv([][]byte{b}); err != io.EOF {
		t.Errorf("closed on the other side: %d bytes, %v", n, err)
	}
}

func TestWritev_FailsWhenNobodyReadsAnyMore(t *testing.T) {
	w := overTCP(t)
	big := make([]byte, 1<<20)
	w.conns[0].SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	var err error
	for err == nil {
		err = w.streams[0].Writev([][]byte{big})
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("to a peer that does not read: %v", err)
	}
	w.conns[0].SetWriteDeadline(time.Time{})
	w.conns[1].Close()
	for err = nil; err == nil; {
		err = w.streams[0].Writev([][]byte{big})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("to a peer that is gone: %v", err)
	}
	w.conns[0].Close()
	if err := w.streams[0].Writev([][]byte{big}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed on this side: %v", err)
	}
}

func TestStream_DoesNotAllocate(t *testing.T) {
	w := overTCP(t)
	a, b := make([]byte, 9), make([]byte, 1000)
	in, out := make([][]byte, 2), make([][]byte, 2)
	n := testing.AllocsPerRun(200, func() {
		out[0], out[1] = a, b
		if err := w.streams[0].Writev(out); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < len(a)+len(b); {
			in[0], in[1] = a, b
			k, err := w.streams[1].Readv(in)
			if err != nil {
				t.Fatal(err)
			}
			got += k
		}
	})
	if n > 0 {
		t.Fatalf("%v allocations for a message", n)
	}
}
