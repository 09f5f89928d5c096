// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// maxFile bounds a profile file; a sound one has a few hundred bytes.
const maxFile = 64 << 10

// builtins are the named layers. A layer changes only what it names. Offloads came
// later than compat and small-vm, which stay as guests know them.
var builtins = map[string]func(*Profile){
	"compat": func(p *Profile) { *p = Compat() },
	"small-vm": func(p *Profile) {
		p.EthQueues, p.RDMAEQs, p.IntrVectors = 2, 4, VectorsAuto
	},
	"generic-100g": func(p *Profile) {
		p.EthQueues, p.RDMAEQs, p.IntrVectors = 16, 32, VectorsAuto
		p.SpeedMbps, p.Xcvr, p.Offloads = 100000, XcvrFiber, true
	},
	"generic-400g": func(p *Profile) {
		p.EthQueues, p.RDMAEQs, p.IntrVectors = 64, 32, VectorsAuto
		p.SpeedMbps, p.Xcvr, p.Offloads = 400000, XcvrFiber, true
	},
}

// Names returns the names of the built-in profiles, sorted.
func Names() []string { return slices.Sorted(maps.Keys(builtins)) }

// Set is a merged profile with the names of its layers.
type Set struct {
	Profile
	Layers []string
}

// Load merges layers, in order, on top of compat. A layer with a "/" in its
// name, or one that ends in ".ini", is a file; any other is a built-in profile.
// The error names file, line and key.
func Load(layers ...string) (Set, error) {
	s := Set{Profile: Compat(), Layers: []string{"compat"}}
	for _, name := range layers {
		if err := s.Add(name); err != nil {
			return Set{Profile: Compat(), Layers: []string{"compat"}}, err
		}
	}
	return s, nil
}

// Add merges one more layer. A layer that fails changes nothing.
func (s *Set) Add(name string) error {
	p := s.Profile
	if strings.Contains(name, "/") || strings.HasSuffix(name, ".ini") {
		text, err := readFile(name)
		if err != nil {
			return err
		}
		if err := p.merge(name, text); err != nil {
			return err
		}
	} else {
		layer, ok := builtins[name]
		if !ok {
			return fmt.Errorf("profile %q does not exist: it is none of %s, and no file, whose name contains a / or ends in .ini",
				name, strings.Join(Names(), ", "))
		}
		layer(&p)
	}
	s.Profile = p
	s.Layers = append(s.Layers, name)
	return nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("profile: %s is larger than %d bytes", name, maxFile)
	}
	return text, nil
}

// merge applies the ini text of file name.
func (p *Profile) merge(name string, text []byte) error {
	out, section := *p, ""
	seen := map[*key]int{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxFile+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			s, ok := strings.CutSuffix(line[1:], "]")
			if section = strings.TrimSpace(s); !ok || !knownSection(section) {
				return fmt.Errorf("%s:%d: unknown section %s", name, n, line)
			}
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		switch {
		case !ok:
			return fmt.Errorf("%s:%d: %q is neither a [section] nor key = value", name, n, line)
		case section == "":
			return fmt.Errorf("%s:%d: key %s is in no section", name, n, k)
		}
		key := findKey(section, k)
		if key == nil {
			return fmt.Errorf("%s:%d: unknown key %s.%s", name, n, section, k)
		}
		if first := seen[key]; first != 0 {
			return fmt.Errorf("%s:%d: key %v is set a second time, first in line %d", name, n, key, first)
		}
		seen[key] = n
		if err := key.set(&out, v); err != nil {
			return fmt.Errorf("%s:%d: key %v: %w", name, n, key, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*p = out
	return nil
}
