// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// line is one message of a recorded session.
type line struct {
	n          int // in the file
	fromClient bool
	size, fds  int
	bytes      []byte // whole for the client, the first 128 for the server
}

func (l line) header() header { return parseHeader(l.bytes) }

func readTranscript(t testing.TB, name string) []line {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []line
	for sc := bufio.NewScanner(f); sc.Scan(); {
		l, err := parseLine(sc.Text())
		if err != nil {
			t.Fatalf("%s:%d: %v", name, len(lines)+1, err)
		}
		l.n = len(lines) + 1
		lines = append(lines, l)
	}
	if len(lines) < 2 || lines[1].header().cmd != CmdVersion {
		t.Fatalf("%s does not start with VERSION", name)
	}
	lines[1] = acceptingMulti(t, lines[1])
	return lines
}

// acceptingMulti is the recorded VERSION reply as we send it: the recorded
// server did not take up the offer of REGION_WRITE_MULTI.
func acceptingMulti(t testing.TB, l line) line {
	t.Helper()
	text, ok := bytes.CutSuffix(l.bytes[headerLen:], []byte("}}\x00"))
	if !ok {
		t.Fatalf("line %d: unexpected VERSION reply", l.n)
	}
	l.bytes = message(l.header().id, CmdVersion, typeReply, enc(text, `,"write_multiple":true}}`, u8(0)))
	l.size = len(l.bytes)
	return l
}

// String returns l as it stands in a transcript.
func (l line) String() string {
	dir := "<"
	if l.fromClient {
		dir = ">"
	}
	return fmt.Sprintf("%s %v len=%d fds=%d %x\n", dir, l.header().cmd, l.size, l.fds, l.bytes)
}

func parseLine(s string) (l line, err error) {
	var dir, cmd, text string
	if _, err := fmt.Sscanf(s, "%s %s len=%d fds=%d %s", &dir, &cmd, &l.size, &l.fds, &text); err != nil {
		return l, err
	}
	l.fromClient = dir == ">"
	l.bytes, err = hex.DecodeString(text)
	if err != nil || len(l.bytes) < headerLen || l.header().cmd.String() != cmd {
		return l, fmt.Errorf("%s: %v", cmd, err)
	}
	return l, nil
}

// probeDevice plays the device of a recorded session: it reads what the
// recorded device read.
type probeDevice struct {
	fakeDevice
	next []byte // data of the next region read
}

func newProbe(t testing.TB, mmapBAR4 bool) *probeDevice {
	d := &probeDevice{}
	in := &d.info
	in.Resettable = true
	in.Regions[0] = RegionInfo{Size: 16 << 10, Flags: Readable | Writable}
	in.Regions[2] = RegionInfo{Size: 64 << 10, Flags: Readable | Writable}
	in.Regions[RegionConfig] = RegionInfo{Size: 4096, Flags: Readable | Writable}
	in.IRQs[IRQMSIX].Count = 20
	in.IRQs[IRQErr].Count = 1
	if mmapBAR4 {
		fd, err := unix.MemfdCreate("bar4", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "bar4")
		t.Cleanup(func() { f.Close() })
		if err := f.Truncate(16 << 10); err != nil {
			t.Fatal(err)
		}
		in.Regions[4] = RegionInfo{Size: 16 << 10, Flags: Readable | Writable}
		in.Regions[4].MMap = &MMap{File: f, Areas: []Area{{0x1000, 4096}, {0x3000, 4096}}}
	}
	d.read = func(_ int, _ uint64, p []byte) error {
		copy(p, d.next)
		return nil
	}
	return d
}

// replay sends the client's lines and compares the server's with what comes.
// It stops after the client line stop, or never if stop is negative.
type replay struct {
	t     *testing.T
	c     *rawClient
	d     *probeDevice
	ram   int
	lines []line
	dma   []string // bytes of DMA messages seen
}

func (r *replay) run() {
	for i, l := range r.lines {
		switch {
		case l.fromClient:
			if i+1 < len(r.lines) && l.header().cmd == CmdRegionRead {
				r.d.next = r.lines[i+1].bytes[headerLen+regionAccessLen:]
			}
			r.c.write(l.bytes, r.descriptors(l)...)
		case l.header().kind() == typeCommand:
			r.dmaMessage(l)
		default:
			r.compare(l, r.c.mustRead())
		}
	}
}

// descriptors makes what the recorded client attached.
func (r *replay) descriptors(l line) []int {
	switch {
	case l.fds == 0:
		return nil
	case l.header().cmd == CmdDMAMap:
		return []int{r.ram}
	}
	fds := make([]int, l.fds)
	for i := range fds {
		fds[i] = newEvent(r.t, unix.EFD_NONBLOCK)
	}
	return fds
}

func (r *replay) compare(l line, got reply) {
	r.t.Helper()
	for _, fd := range got.fds {
		unix.Close(fd)
	}
	b := make([]byte, headerLen)
	got.header.put(b)
	b = append(b, got.payload...)
	if len(b) != l.size || len(got.fds) != l.fds || !bytes.Equal(b[:min(len(b), transcriptCut)], l.bytes) {
		r.t.Fatalf("line %d: got len=%d fds=%d %x\nwant len=%d fds=%d %x", l.n, len(b), len(got.fds), b, l.size, l.fds, l.bytes)
	}
}

// dmaMessage makes the device send the recorded DMA message and answers it.
func (r *replay) dmaMessage(l line) {
	r.t.Helper()
	iova, count := le.Uint64(l.bytes[16:]), le.Uint64(l.bytes[24:])
	p := make([]byte, count)
	copy(p, l.bytes[32:])
	done := make(chan error)
	cmd := l.header().cmd
	go func() {
		if cmd == CmdDMARead {
			done <- r.d.Session().DMARead(context.Background(), p, iova)
		} else {
			done <- r.d.Session().DMAWrite(context.Background(), p, iova)
		}
	}()
	got := r.c.mustRead()
	r.compare(l, got)
	answer := append([]byte(nil), got.payload[:dmaMessageLen]...)
	data := bytes.Repeat([]byte{0x5a}, int(count))
	if cmd == CmdDMARead {
		answer = append(answer, data...)
	}
	r.c.write(message(got.id, cmd, typeReply, answer))
	if err := <-done; err != nil {
		r.t.Fatalf("line %d: %v", l.n, err)
	}
	if cmd == CmdDMARead && !bytes.Equal(p, data) {
		r.t.Fatalf("line %d: read %x", l.n, p)
	}
	r.dma = append(r.dma, cmd.String())
}

func newReplay(t *testing.T, name string, o Options) *replay {
	d := newProbe(t, strings.Contains(name, "q35"))
	return &replay{
		t: t, d: d, c: start(t, d, o), ram: newMemfd(t, 512<<20),
		lines: readTranscript(t, name),
	}
}

var transcripts = []string{"testdata/qemu11.1.3-q35.hex", "testdata/qemu11.1.3-viommu.hex"}

// TestReplaysRecordedQEMUSessions feeds what QEMU sent and compares every
// answer, byte by byte, with what QEMU was content with.
func TestReplaysRecordedQEMUSessions(t *testing.T) {
	for _, name := range transcripts {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			var trace bytes.Buffer
			tr := NewTranscript(&trace)
			r := newReplay(t, name, Options{Trace: tr})
			r.run()
			r.c.close()
			if err := r.c.wait(); err != nil {
				t.Fatal(err)
			}
			if tr.Err() != nil {
				t.Fatal(tr.Err())
			}
			// The recorder did not note the client's replies to DMA messages.
			var kept strings.Builder
			for s := range strings.Lines(trace.String()) {
				if l, err := parseLine(s); err != nil {
					t.Fatalf("trace line %q: %v", s, err)
				} else if !l.fromClient || l.header().kind() == typeCommand {
					kept.WriteString(s)
				}
			}
			var want strings.Builder
			for _, l := range r.lines {
				want.WriteString(l.String())
			}
			if kept.String() != want.String() {
				t.Fatal("the trace of the replay differs from the recording")
			}
			if dma := len(r.dma); strings.Contains(name, "viommu") != (dma == 2) {
				t.Fatalf("%d DMA messages", dma)
			}
			if n := metric(t, r.c.srv, "errors_unreported") + metric(t, r.c.srv, "replies_error"); n != 0 {
				t.Fatalf("%d errors in a session without any", n)
			}
		})
	}
}

// TestReplayReachesTheGuestsMemory proves that after a recorded boot an IOVA
// means the byte of the guest's RAM that the last maps say.
func TestReplayReachesTheGuestsMemory(t *testing.T) {
	leakCheck(t)
	r := newReplay(t, transcripts[0], Options{})
	r.run()
	r.c.alive()
	mem := r.d.Session().Mem()
	for _, iova := range []uint64{0, 0xc2fff, 0x100000, 0x1fffffff} {
		if err := mem.WriteAt([]byte{0x77}, iova); err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err := unix.Pread(r.ram, b[:], int64(iova)); err != nil || b[0] != 0x77 {
			t.Fatalf("file at %#x has %#x, %v", iova, b[0], err)
		}
	}
	if err := mem.WriteAt([]byte{1}, 0x20000000); err == nil {
		t.Fatal("wrote behind the end of RAM")
	}
	if err := mem.WriteAt([]byte{1}, 0xfffc0000); err == nil {
		t.Fatal("wrote to ROM")
	}
	if len(r.d.resets) != 1 || r.d.resets[0] != ResetCommand {
		t.Fatalf("resets %v", r.d.resets)
	}
}
