// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cut turns text into the JSON part of a VERSION payload.
func cut(text string) []byte { return enc(u16(0), u16(0), text, u8(0)) }

func TestVersionRefusals(t *testing.T) {
	caps := func(s string) []byte { return cut(`{"capabilities":{` + s + `}}`) }
	for name, msg := range map[string][]byte{
		"no payload":                    message(7, CmdVersion, 0, nil),
		"payload of 3 bytes":            message(7, CmdVersion, 0, []byte{0, 0, 0}),
		"size above the limit":          header.bytes(header{7, CmdVersion, maxMessage + 1, 0, 0}),
		"size below a header":           header.bytes(header{7, CmdVersion, 15, 0, 0}),
		"command 999 first":             message(7, 999, 0, []byte{1}),
		"GET_INFO first":                message(7, CmdGetInfo, 0, enc(u32(16), u32(0), u64(0))),
		"type 2":                        message(7, CmdVersion, 2, cut("{}")),
		"type 15":                       message(7, CmdVersion, 15, cut("{}")),
		"major 999":                     message(7, CmdVersion, 0, enc(u16(999), u16(0), "{}\x00")),
		"JSON without NUL":              message(7, CmdVersion, 0, enc(u32(0), "{}")),
		"NUL in the middle":             message(7, CmdVersion, 0, enc(u32(0), "{\x00}\x00")),
		"only NUL":                      message(7, CmdVersion, 0, enc(u32(0), "\x00")),
		"open brace":                    message(7, CmdVersion, 0, cut("{")),
		"quote":                         message(7, CmdVersion, 0, cut(`"`)),
		"two objects":                   message(7, CmdVersion, 0, cut("{}{}")),
		"array":                         message(7, CmdVersion, 0, cut("[]")),
		"number":                        message(7, CmdVersion, 0, cut("1")),
		"1 MiB of JSON":                 message(7, CmdVersion, 0, cut(`{"x":"`+strings.Repeat("a", 1<<20-100)+`"}`)),
		"deep nesting of arrays":        message(7, CmdVersion, 0, cut(`{"x":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)+"}")),
		"deep nesting of objects":       message(7, CmdVersion, 0, cut(strings.Repeat(`{"x":`, 3000)+"1"+strings.Repeat("}", 3000))),
		"duplicate keys":                message(7, CmdVersion, 0, caps(`"max_msg_fds":1,"max_msg_fds":2`)),
		"duplicate unknown keys":        message(7, CmdVersion, 0, cut(`{"x":1,"x":1}`)),
		"capabilities is a string":      message(7, CmdVersion, 0, cut(`{"capabilities":"x"}`)),
		"capabilities is null":          message(7, CmdVersion, 0, cut(`{"capabilities":null}`)),
		"max_msg_fds is a string":       message(7, CmdVersion, 0, caps(`"max_msg_fds":"foo"`)),
		"max_msg_fds -1":                message(7, CmdVersion, 0, caps(`"max_msg_fds":-1`)),
		"max_msg_fds 1025":              message(7, CmdVersion, 0, caps(`"max_msg_fds":1025`)),
		"max_msg_fds 1.5":               message(7, CmdVersion, 0, caps(`"max_msg_fds":1.5`)),
		"max_data_xfer_size 1e400":      message(7, CmdVersion, 0, caps(`"max_data_xfer_size":1e400`)),
		"max_data_xfer_size 2^64":       message(7, CmdVersion, 0, caps(`"max_data_xfer_size":18446744073709551616`)),
		"max_data_xfer_size is a float": message(7, CmdVersion, 0, caps(`"max_data_xfer_size":1048576.0`)),
		"pgsizes is a string":           message(7, CmdVersion, 0, caps(`"pgsizes":"4096"`)),
		"max_dma_maps is an object":     message(7, CmdVersion, 0, caps(`"max_dma_maps":{}`)),
		"write_multiple is a number":    message(7, CmdVersion, 0, caps(`"write_multiple":1`)),
		"migration is a string":         message(7, CmdVersion, 0, caps(`"migration":"foo"`)),
		"migration.pgsize is a string":  message(7, CmdVersion, 0, caps(`"migration":{"pgsize":"foo"}`)),
		"twin_socket is a boolean":      message(7, CmdVersion, 0, caps(`"twin_socket":true`)),
		"twin_socket.supported is 1":    message(7, CmdVersion, 0, caps(`"twin_socket":{"supported":1}`)),
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			dev := newFake()
			c := start(t, dev, Options{})
			c.write(msg)
			r := c.mustRead()
			want := header{id: 7, cmd: parseHeader(msg).cmd, size: 16, flags: typeReply | flagError, errno: u32(syscall.EINVAL)}
			if r.header != want {
				t.Fatalf("got %+v, want %+v", r.header, want)
			}
			c.wantEOF()
			if err := c.wait(); err == nil {
				t.Fatal("ServeConn reports no error")
			}
			if dev.attached != 0 || dev.detached != 0 {
				t.Fatal("the device saw a client that never was")
			}
			if metric(t, c.srv, "handshake_errors") != 1 {
				t.Fatal("not counted")
			}
		})
	}
}

func (h header) bytes() []byte {
	b := make([]byte, headerLen)
	h.put(b)
	return b
}

func TestVersionThatIsNotAnswered(t *testing.T) {
	for name, msg := range map[string][]byte{
		"NO_REPLY":              message(1, CmdVersion, flagNoReply, cut("{}")),
		"NO_REPLY and bad size": header.bytes(header{1, CmdVersion, 3, flagNoReply, 0}),
		"a reply first":         message(1, CmdVersion, typeReply, cut("{}")),
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			c := start(t, newFake(), Options{})
			c.write(msg)
			c.wantEOF()
		})
	}
	t.Run("with a descriptor", func(t *testing.T) {
		leakCheck(t)
		c := start(t, newFake(), Options{})
		c.write(message(1, CmdVersion, 0, cut("{}")), newMemfd(t, 4096))
		if r := c.mustRead(); r.errno != u32(syscall.EINVAL) {
			t.Fatalf("%+v", r.header)
		}
		c.wantEOF()
	})
}

func TestVersionReplies(t *testing.T) {
	const base = `"max_msg_fds":16,"max_data_xfer_size":1048576`
	for _, c := range []struct {
		name         string
		minor, reply u16
		json         string
		want         string // members of capabilities
	}{
		{"QEMU 11.1", 0, 0, qemuJSON, base + `,"write_multiple":true`},
		{"rust-vmm", 1, 1, `{"capabilities":{"max_msg_fds":1,"max_data_xfer_size":1048576,"migration":{"pgsize":4096}}}` + "\x00", base},
		{"libvfio-user sample client", 2, 2, `{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576}}` + "\x00", `"max_msg_fds":16`},
		{"newer minor", 9, 2, qemuJSON, base + `,"write_multiple":true`},
		{"no JSON", 2, 2, "", base},
		{"empty object", 2, 2, "{}\x00", base},
		{"empty capabilities", 0, 0, `{"capabilities":{}}` + "\x00", ""},
		{"write_multiple false", 0, 0, `{"capabilities":{"write_multiple":false,"x":"` + strings.Repeat("x", 99) + `"}}` + "\x00", base},
		{"write_multiple does not fit", 0, 0, `{"capabilities":{"write_multiple":true,"unknown_one":[1,2.5,{"a":-1}]}}` + "\x00", base},
		{"limits", 0, 0, `{"capabilities":{"max_msg_fds":1024,"max_data_xfer_size":9223372036854775807,"twin_socket":{"supported":true,"fd_index":0},"pgsizes":0}}` + "\x00", base},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakCheck(t)
			cl := start(t, newFake(), Options{})
			r := cl.negotiate(c.minor, c.json)
			want := enc(u16(0), c.reply, `{"capabilities":{`, c.want, `}}`, u8(0))
			if string(r.payload) != string(want) {
				t.Fatalf("got  %q\nwant %q", r.payload, want)
			}
			var any map[string]map[string]any
			if err := json.Unmarshal(r.payload[4:len(r.payload)-1], &any); err != nil || any["capabilities"] == nil {
				t.Fatalf("reply is no JSON with capabilities: %v", err)
			}
			cl.alive()
		})
	}
}

// TestVersionReplyNeverOutgrowsTheRequest is QEMU's condition; requests too
// short for any answer are exempt.
func TestVersionReplyNeverOutgrowsTheRequest(t *testing.T) {
	for n := range 200 {
		text := fmt.Sprintf(`{"capabilities":{"write_multiple":true,"%s":0}}`, strings.Repeat("p", n)) + "\x00"
		p := enc(u32(0), text)
		v, err := decodeVersion(p)
		if err != nil {
			t.Fatal(err)
		}
		if a := answerVersion(v, len(p)); len(a) > len(p) {
			t.Fatalf("answer of %d bytes to a request of %d", len(a), len(p))
		}
	}
}

func TestSecondVersionIsAnUnknownCommand(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	c.fails(syscall.EINVAL, CmdVersion, enc(u32(0), qemuJSON))
	c.alive()
}

func TestHandshakeTimeout(t *testing.T) {
	for name, drip := range map[string]bool{"silent client": false, "one byte at a time": true} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			c := start(t, newFake(), Options{HandshakeTimeout: 60 * time.Millisecond})
			stop := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				msg := message(1, CmdVersion, 0, cut("{}"))
				for i := 0; drip && i < len(msg)-1; i++ {
					if c.tryWrite(msg[i:i+1]) != nil {
						return
					}
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
					}
				}
			}()
			began := time.Now()
			c.wantEOF()
			close(stop)
			<-done
			if d := time.Since(began); d < 50*time.Millisecond {
				t.Fatalf("dropped after %v", d)
			}
			if err := c.wait(); err == nil || !strings.Contains(err.Error(), "no VERSION within") {
				t.Fatalf("ServeConn: %v", err)
			}
		})
	}
}

func TestDeviceMayRefuseAClient(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	dev.attach = func(*Session) error { return fmt.Errorf("not now: %w", syscall.ENODEV) }
	c := start(t, dev, Options{})
	c.fails(syscall.ENODEV, CmdVersion, enc(u32(0), qemuJSON))
	c.wantEOF()
	if err := c.wait(); err == nil {
		t.Fatal("ServeConn reports no error")
	}
	if dev.detached != 0 {
		t.Fatal("Detach without a successful Attach")
	}
}
