// SPDX-License-Identifier: Apache-2.0

// Package wire is the byte stream between a test on the host and the agent that
// is process 1 of a lab guest. It runs over one virtio-serial port, a reliable
// byte stream without message borders and without addresses, so frames carry
// both:
//
//	 0               4       5       6               8               12              16
//	+---------------+-------+-------+---------------+---------------+---------------+---------
//	| magic "eRnG"  | type  |   0   |       0       | stream (LE32) | length (LE32) | payload
//	+---------------+-------+-------+---------------+---------------+---------------+---------
//
// A stream is one command: Start opens it, Stdin, Stdout and Stderr carry its
// data (an empty Stdin is end of file), Exit closes it. Any number of streams
// is open at once. Stream 0 speaks of the session itself.
//
// A virtio-serial port outlives the programs at both ends, and may hold bytes
// of a host that is gone. Therefore a session starts with Hello and a nonce;
// the agent ends whatever an earlier host had started and answers Welcome with
// the same nonce; the host throws away all that comes before it.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Sizes of the frame, in bytes.
const (
	HeaderSize = 16
	// MaxPayload bounds one frame. Longer data is sent as several frames.
	MaxPayload = 64 << 10
	// NonceSize is the length of the Hello payload and of the start of the
	// Welcome payload.
	NonceSize = 16
)

// Magic is the first four bytes of each frame.
const Magic = "eRnG"

// PortPrefix starts the name of each virtio-serial port that the agent serves;
// a number follows.
const PortPrefix = "ernic.agent."

// ProbeMarker is what a guest with ernic.probe on its command line says on the
// console when process 1 runs.
const ProbeMarker = "this virtual machine works"

// Type says what a frame carries.
type Type uint8

// Frame types. The numbers are fixed; new ones are appended.
const (
	Hello    Type = 1  // host: nonce; starts a session
	Welcome  Type = 2  // guest: nonce, then Info as JSON
	Start    Type = 3  // host: Command as JSON
	Stdin    Type = 4  // host: bytes, empty at end of file
	Stdout   Type = 5  // guest: bytes
	Stderr   Type = 6  // guest: bytes
	Exit     Type = 7  // guest: Status as JSON
	Signal   Type = 8  // host: one byte, the signal number, for the command's process group
	PowerOff Type = 9  // host: end the guest
	Reject   Type = 10 // guest: text; a frame that the agent cannot obey
)

var typeNames = [...]string{
	Hello: "hello", Welcome: "welcome", Start: "start", Stdin: "stdin", Stdout: "stdout",
	Stderr: "stderr", Exit: "exit", Signal: "signal", PowerOff: "power-off", Reject: "reject",
}

func (t Type) String() string {
	if t >= Hello && int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Frame is one message. Payload is at most MaxPayload bytes.
type Frame struct {
	Type    Type
	Stream  uint32
	Payload []byte
}

// Info tells the host what answered.
type Info struct {
	Kernel string  `json:"kernel"` // utsname release
	CPUs   int     `json:"cpus"`   // online processors
	Uptime float64 `json:"uptime"` // seconds since the kernel started
}

// Command asks for a process, or for a file to be written from standard input.
type Command struct {
	// Argv is the program and its arguments. The program is looked up in the
	// guest's PATH.
	Argv []string `json:"argv,omitempty"`
	// Env is added to the guest's own environment, as NAME=value.
	Env []string `json:"env,omitempty"`
	Dir string   `json:"dir,omitempty"`
	// WriteFile, when set, makes the stream write its standard input to this
	// path instead of starting a process. Missing directories are made.
	WriteFile string `json:"write_file,omitempty"`
	// Mode holds the permission bits of WriteFile.
	Mode uint32 `json:"mode,omitempty"`
}

// Status is how a command ended.
type Status struct {
	Code   int    `json:"code"`             // exit status, -1 if there is none
	Signal int    `json:"signal,omitempty"` // the signal that ended it, or 0
	Error  string `json:"error,omitempty"`  // why it could not run
}

// ErrMagic is returned for bytes that are not the start of a frame.
var ErrMagic = errors.New("agent stream: no frame where one has to start")

// Append encodes f behind b.
func Append(b []byte, f Frame) []byte {
	b = append(b, Magic...)
	b = append(b, byte(f.Type), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, f.Stream)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Payload)))
	return append(b, f.Payload...)
}

// Read takes one frame from r. It returns io.EOF only at a frame border, and
// reads no byte beyond the frame.
func Read(r io.Reader) (Frame, error) {
	var h [HeaderSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}
	if string(h[:4]) != Magic {
		return Frame{}, fmt.Errorf("%w: % x", ErrMagic, h[:4])
	}
	f := Frame{Type: Type(h[4]), Stream: binary.LittleEndian.Uint32(h[8:])}
	n := binary.LittleEndian.Uint32(h[12:])
	if n > MaxPayload {
		return Frame{}, fmt.Errorf("agent stream: %v frame of %d bytes, the limit is %d", f.Type, n, MaxPayload)
	}
	f.Payload = make([]byte, n)
	if _, err := io.ReadFull(r, f.Payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return f, nil
}

// FindWelcome reads r until the Welcome that answers nonce, throwing away what
// comes before, and returns the rest of its payload. It reads byte by byte
// until it meets a frame that it believes, so r should be buffered.
func FindWelcome(r io.Reader, nonce [NonceSize]byte) ([]byte, error) {
	var window [HeaderSize + NonceSize]byte
	for {
		copy(window[:], window[1:])
		if _, err := io.ReadFull(r, window[len(window)-1:]); err != nil {
			return nil, err
		}
		if string(window[:4]) != Magic || Type(window[4]) != Welcome ||
			[NonceSize]byte(window[HeaderSize:]) != nonce {
			continue
		}
		n := binary.LittleEndian.Uint32(window[12:])
		if n < NonceSize || n > MaxPayload {
			continue
		}
		rest := make([]byte, n-NonceSize)
		_, err := io.ReadFull(r, rest)
		return rest, err
	}
}
