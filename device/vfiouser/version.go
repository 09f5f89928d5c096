// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

const (
	maxVersionLen  = 64 << 10 // bytes of a VERSION payload we parse
	maxVersionDeep = 16       // nesting of its JSON
	maxClientFDs   = 1024     // the largest max_msg_fds a client may claim
)

// clientVersion is what a client proposed.
type clientVersion struct {
	major, minor  uint16
	hasJSON       bool
	maxTransfer   uint64 // bytes it takes in one data message
	writeMultiple bool   // it can send REGION_WRITE_MULTI
}

// decodeVersion parses the payload of a VERSION request.
func decodeVersion(p []byte) (v clientVersion, err error) {
	if len(p) < 4 {
		return v, errors.New("payload shorter than 4 bytes")
	}
	v = clientVersion{major: le.Uint16(p), minor: le.Uint16(p[2:]), maxTransfer: maxTransfer}
	if v.major != protoMajor {
		return v, fmt.Errorf("major version %d, want %d", v.major, protoMajor)
	}
	text := p[4:]
	if len(text) == 0 {
		return v, nil
	}
	v.hasJSON = true
	if len(text) > maxVersionLen {
		return v, fmt.Errorf("JSON of %d bytes, the limit is %d", len(text), maxVersionLen)
	}
	if bytes.IndexByte(text, 0) != len(text)-1 {
		return v, errors.New("JSON does not end with its only NUL")
	}
	top, err := parseObject(text[:len(text)-1])
	if err != nil {
		return v, err
	}
	caps, err := member[map[string]any](top, "capabilities", "an object")
	if err != nil || caps == nil {
		return v, err
	}
	return v, v.capabilities(*caps)
}

func (v *clientVersion) capabilities(caps map[string]any) error {
	if n, err := integer(caps, "max_msg_fds"); err != nil {
		return err
	} else if n != nil && *n > maxClientFDs {
		return fmt.Errorf("max_msg_fds is %d, the limit is %d", *n, maxClientFDs)
	}
	n, err := integer(caps, "max_data_xfer_size")
	if err != nil {
		return err
	}
	if n != nil {
		v.maxTransfer = *n
	}
	for _, name := range []string{"max_dma_maps", "pgsizes"} {
		if _, err := integer(caps, name); err != nil {
			return err
		}
	}
	w, err := member[bool](caps, "write_multiple", "a boolean")
	if err != nil {
		return err
	}
	v.writeMultiple = w != nil && *w
	m, err := member[map[string]any](caps, "migration", "an object")
	if err != nil {
		return err
	}
	if m != nil {
		for _, name := range []string{"pgsize", "max_bitmap_size"} {
			if _, err := integer(*m, name); err != nil {
				return err
			}
		}
	}
	t, err := member[map[string]any](caps, "twin_socket", "an object")
	if err != nil || t == nil {
		return err
	}
	if _, err := member[bool](*t, "supported", "a boolean"); err != nil {
		return err
	}
	_, err = integer(*t, "fd_index")
	return err
}

// member returns the named member of o as a T, or nil if it is absent.
func member[T any](o map[string]any, name, want string) (*T, error) {
	x, ok := o[name]
	if !ok {
		return nil, nil
	}
	t, ok := x.(T)
	if !ok {
		return nil, fmt.Errorf("%s is not %s", name, want)
	}
	return &t, nil
}

// integer returns the named member of o as an integer of 0 to 2^63-1.
func integer(o map[string]any, name string) (*uint64, error) {
	num, err := member[json.Number](o, name, "a number")
	if err != nil || num == nil {
		return nil, err
	}
	n, err := strconv.ParseUint(string(*num), 10, 64)
	if err != nil || n > math.MaxInt64 {
		return nil, fmt.Errorf("%s is %.20q, not an integer of 0 to 2^63-1", name, string(*num))
	}
	return &n, nil
}

// parseObject parses text as one JSON object. Unlike json.Unmarshal it
// refuses duplicate names and deep nesting.
func parseObject(text []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	x, err := parseValue(d, 0)
	if err != nil {
		return nil, fmt.Errorf("JSON: %w", err)
	}
	o, ok := x.(map[string]any)
	if !ok {
		return nil, errors.New("JSON is not an object")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("JSON: text after the object")
	}
	return o, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth++; depth > maxVersionDeep {
		return nil, fmt.Errorf("nested deeper than %d", maxVersionDeep)
	}
	if delim == '[' {
		var a []any
		for d.More() {
			x, err := parseValue(d, depth)
			if err != nil {
				return nil, err
			}
			a = append(a, x)
		}
		_, err := d.Token()
		return a, err
	}
	o := make(map[string]any)
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := k.(string)
		if !ok {
			return nil, errors.New("member name is not a string")
		}
		if _, dup := o[name]; dup {
			return nil, fmt.Errorf("duplicate member %.40q", name)
		}
		if o[name], err = parseValue(d, depth); err != nil {
			return nil, err
		}
	}
	_, err = d.Token()
	return o, err
}

// answerVersion builds the payload of the reply. QEMU rejects a reply that is
// longer than its request, so members whose absence means nothing bad are
// left out of an answer to a short request.
func answerVersion(v clientVersion, requestLen int) []byte {
	fds := fmt.Sprintf(`"max_msg_fds":%d`, maxAnnouncedFDs)
	xfer := fmt.Sprintf(`"max_data_xfer_size":%d`, maxTransfer)
	var texts []string
	if v.writeMultiple {
		texts = append(texts, fds+","+xfer+`,"write_multiple":true`)
	}
	// The size we announce is the protocol's default, so it goes first.
	texts = append(texts, fds+","+xfer, fds, "")
	limit := math.MaxInt
	if v.hasJSON {
		limit = requestLen
	}
	out := versionPayload(v, texts[0]) // for a request too short for any answer
	for _, t := range texts {
		if p := versionPayload(v, t); len(p) <= limit {
			out = p
			break
		}
	}
	return out
}

func versionPayload(v clientVersion, members string) []byte {
	p := le.AppendUint16(nil, protoMajor)
	p = le.AppendUint16(p, min(v.minor, protoMinor))
	p = append(p, `{"capabilities":{`...)
	p = append(p, members...)
	return append(p, "}}\x00"...)
}
