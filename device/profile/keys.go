// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// key is one setting: how it is written and what it may be.
type key struct {
	section, name string
	get           func(*Profile) string
	set           func(*Profile, string) error
}

func (k *key) String() string { return k.section + "." + k.name }

var (
	asicNames = []string{"none", "capri", "elba", "giglio", "salina"}
	xcvrNames = []string{"copper", "fiber", "none"}
	speedList = []int{1000, 10000, 25000, 40000, 50000, 100000, 200000, 400000}
)

// maxFWVersion leaves room for the NUL in the 32-byte register field.
const maxFWVersion = 31

// keys lists every setting in the order of the printed profile.
var keys = []key{
	enum("identity", "asic_type", asicNames, func(p *Profile) *AsicType { return &p.AsicType }),
	number("identity", "asic_rev", 0, 255, func(p *Profile) *uint8 { return &p.AsicRev }),
	{"identity", "fw_version",
		func(p *Profile) string { return p.FWVersion },
		func(p *Profile, v string) error {
			if err := checkFWVersion(v); err != nil {
				return err
			}
			p.FWVersion = v
			return nil
		}},
	{"link", "speed_mbps",
		func(p *Profile) string { return strconv.Itoa(p.SpeedMbps) },
		func(p *Profile, v string) error {
			n, err := integer(v)
			if err != nil {
				return err
			}
			if !slices.Contains(speedList, n) {
				return fmt.Errorf("%d is none of %v", n, speedList)
			}
			p.SpeedMbps = n
			return nil
		}},
	enum("link", "xcvr", xcvrNames, func(p *Profile) *Xcvr { return &p.Xcvr }),
	number("link", "mtu_max", 1500, 9582, func(p *Profile) *int { return &p.MTUMax }),
	{"link", "offloads",
		func(p *Profile) string { return map[bool]string{false: "off", true: "on"}[p.Offloads] },
		func(p *Profile, v string) error {
			if v != "on" && v != "off" {
				return fmt.Errorf("%q is neither off nor on", v)
			}
			p.Offloads = v == "on"
			return nil
		}},
	number("stats", "interval_ms", 10, 60000, func(p *Profile) *int { return &p.StatsIntervalMS }),
	number("queues", "eth", 1, 64, func(p *Profile) *int { return &p.EthQueues }),
	number("queues", "rdma_eqs", 4, 32, func(p *Profile) *int { return &p.RDMAEQs }),
	{"queues", "intr_vectors",
		func(p *Profile) string {
			if p.IntrVectors == VectorsAuto {
				return "auto"
			}
			return strconv.Itoa(p.IntrVectors)
		},
		func(p *Profile, v string) error {
			if v == "auto" {
				p.IntrVectors = VectorsAuto
				return nil
			}
			n, err := within(v, 2, 128)
			if err != nil {
				return fmt.Errorf("%w, and not auto", err)
			}
			p.IntrVectors = n
			return nil
		}},
}

func checkFWVersion(v string) error {
	if len(v) < 1 || len(v) > maxFWVersion {
		return fmt.Errorf("%d characters, want 1..%d", len(v), maxFWVersion)
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' || v[i] == '\\' {
			return fmt.Errorf("character %d, %q, is not printable ASCII or is a backslash", i+1, v[i])
		}
	}
	if v != strings.TrimSpace(v) {
		return fmt.Errorf("%q starts or ends with a space", v)
	}
	return nil
}

func integer(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || strconv.Itoa(n) != v {
		return 0, fmt.Errorf("%q is not a decimal number", v)
	}
	return n, nil
}

func within(v string, lo, hi int) (int, error) {
	n, err := integer(v)
	if err != nil {
		return 0, err
	}
	if n < lo || n > hi {
		return 0, fmt.Errorf("%d is not within %d..%d", n, lo, hi)
	}
	return n, nil
}

func number[T ~int | ~uint8](section, name string, lo, hi int, field func(*Profile) *T) key {
	return key{section, name,
		func(p *Profile) string { return strconv.Itoa(int(*field(p))) },
		func(p *Profile, v string) error {
			n, err := within(v, lo, hi)
			if err == nil {
				*field(p) = T(n)
			}
			return err
		}}
}

func enum[T ~uint8](section, name string, names []string, field func(*Profile) *T) key {
	return key{section, name,
		func(p *Profile) string {
			if n := int(*field(p)); n < len(names) {
				return names[n]
			}
			return "?"
		},
		func(p *Profile, v string) error {
			n := slices.Index(names, v)
			if n < 0 {
				return fmt.Errorf("%q is none of %s", v, strings.Join(names, ", "))
			}
			*field(p) = T(n)
			return nil
		}}
}

func findKey(section, name string) *key {
	for i := range keys {
		if keys[i].section == section && keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

func knownSection(section string) bool {
	return slices.ContainsFunc(keys, func(k key) bool { return k.section == section })
}

// Check reports the first value that is out of range.
func (p *Profile) Check() error {
	for i := range keys {
		k, copied := &keys[i], *p
		if err := k.set(&copied, k.get(p)); err != nil {
			return fmt.Errorf("profile: %v: %w", k, err)
		}
	}
	return nil
}

// Set changes one value by its key, such as "queues.eth", to the text a file
// would have. It is what a flag that overrides every layer uses.
func (p *Profile) Set(name, value string) error {
	section, rest, _ := strings.Cut(name, ".")
	k := findKey(section, rest)
	if k == nil {
		return fmt.Errorf("profile: there is no key %s", name)
	}
	if err := k.set(p, value); err != nil {
		return fmt.Errorf("profile: %s: %w", name, err)
	}
	return nil
}
