// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

//go:embed pins.yaml
var pinFile []byte

// pins is the content of pins.yaml, which explains the fields.
type pins struct {
	Base struct {
		Suite   string   `yaml:"suite"`
		Include []string `yaml:"include"`
	} `yaml:"base"`
	Tools struct {
		Packages    []string `yaml:"packages"`
		QEMUMinimum string   `yaml:"qemu_minimum"`
	} `yaml:"tools"`
	Kernel struct {
		Image            string   `yaml:"image"`
		Headers          string   `yaml:"headers"`
		Source           string   `yaml:"source"`
		InitramfsModules []string `yaml:"initramfs_modules"`
		Drop             []string `yaml:"drop"`
		Patches          []string `yaml:"patches"`
	} `yaml:"kernel"`
	Provider struct {
		Source  string   `yaml:"source"`
		Patches []string `yaml:"patches"`
	} `yaml:"provider"`
	Build struct {
		Packages []string `yaml:"packages"`
	} `yaml:"build"`
	Guest struct {
		Packages []string `yaml:"packages"`
		Disk     int      `yaml:"disk"` // MiB
	} `yaml:"guest"`
}

func parsePins(b []byte) (*pins, error) {
	var p pins
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("pin file: %w", err)
	}
	return &p, p.check()
}

func (p *pins) check() error {
	var errs []error
	for name, empty := range map[string]bool{
		"base.suite":               p.Base.Suite == "",
		"tools.packages":           len(p.Tools.Packages) == 0,
		"tools.qemu_minimum":       p.Tools.QEMUMinimum == "",
		"kernel.headers":           p.Kernel.Headers == "",
		"kernel.source":            p.Kernel.Source == "",
		"kernel.initramfs_modules": len(p.Kernel.InitramfsModules) == 0,
		"provider.source":          p.Provider.Source == "",
		"build.packages":           len(p.Build.Packages) == 0,
		"guest.packages":           len(p.Guest.Packages) == 0,
		"guest.disk":               p.Guest.Disk <= 0,
	} {
		if empty {
			errs = append(errs, fmt.Errorf("pin file: %s says nothing", name))
		}
	}
	if re, err := regexp.Compile(p.Kernel.Image); err != nil {
		errs = append(errs, fmt.Errorf("pin file: kernel.image: %w", err))
	} else if re.NumSubexp() != 1 {
		errs = append(errs, errors.New("pin file: kernel.image needs one group that captures the version"))
	}
	return errors.Join(errs...)
}
