// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

// Artifacts is what guests are started from. All paths are on the host.
type Artifacts struct {
	Tree      string // root directory for QEMU
	Image     string // directory with the root disk and the kernel
	Boot      string // directory with the initramfs
	Kernel    string // as Debian ships it
	Unpacked  string // the same, as an ELF file that starts faster
	Initramfs string
	Disk      string
	// Versions maps "qemu", "kernel", "rdma-core" and so on to what is inside.
	Versions map[string]string
}

//go:embed recipe_*.go bzimage.go tree.go
var recipeSource embed.FS

// recipe is the pin file with all that it refers to, and the keys that follow.
type recipe struct {
	pins    *pins
	patches map[string][]byte
	keys    map[string]string
}

func newRecipe() (*recipe, error) {
	p, err := parsePins(pinFile)
	if err != nil {
		return nil, err
	}
	root, err := moduleDir()
	if err != nil {
		return nil, err
	}
	patches := map[string][]byte{}
	for _, n := range append(p.Kernel.Patches[:len(p.Kernel.Patches):len(p.Kernel.Patches)], p.Provider.Patches...) {
		if patches[n], err = os.ReadFile(filepath.Join(root, "ansible", "files", "patches", n)); err != nil {
			return nil, fmt.Errorf("patch of the guest lab: %w", err)
		}
	}
	r := &recipe{pins: p, patches: patches}
	r.keys, err = componentKeys(p, patches)
	return r, err
}

// componentKeys hashes what each component is made of.
func componentKeys(p *pins, patches map[string][]byte) (map[string]string, error) {
	var sources = map[string][]string{
		"base":  {"recipe_base.go", "tree.go"},
		"tools": {"recipe_tools.go", "tree.go"},
		"image": {"recipe_image.go", "recipe_kernel.go", "recipe_provider.go", "tree.go"},
	}
	settings := map[string]any{
		"base":  p.Base,
		"tools": p.Tools,
		"image": []any{p.Kernel, p.Provider, p.Build, p.Guest},
	}
	keys := map[string]string{}
	for _, name := range []string{"base", "tools", "image"} {
		k := newKey(name).add("settings", fmt.Appendf(nil, "%+v", settings[name]))
		for _, s := range sources[name] {
			b, err := recipeSource.ReadFile(s)
			if err != nil {
				return nil, err
			}
			k.add(s, b)
		}
		if name != "base" {
			k.add("base", []byte(keys["base"]))
		}
		if name == "image" {
			for _, n := range append(p.Kernel.Patches[:len(p.Kernel.Patches):len(p.Kernel.Patches)], p.Provider.Patches...) {
				k.add(n, patches[n])
			}
		}
		keys[name] = k.String()
	}
	return keys, nil
}

// Prepare builds what is missing and returns what guests start from. A second
// call, in this or another process, finds all of it built and takes about a
// second.
func Prepare(ctx context.Context, p *Progress) (*Artifacts, error) {
	if err := installTools(ctx, p); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	r, err := newRecipe()
	if err != nil {
		return nil, err
	}
	agent, err := compileAgent(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	s := &store{dir: dir, p: p}
	if a, ok := r.find(s, agent); ok {
		return a, nil
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return r.build(ctx, s, agent)
}

// bootKey depends on the image, whose modules the initramfs carries.
func (r *recipe) bootKey(agent []byte) (string, error) {
	k := newKey("boot").add("agent", agent).add("image", []byte(r.keys["image"]))
	for _, name := range []string{"recipe_boot.go", "bzimage.go"} {
		b, err := recipeSource.ReadFile(name)
		if err != nil {
			return "", err
		}
		k.add(name, b)
	}
	return k.String(), nil
}

func (r *recipe) find(s *store, agent []byte) (*Artifacts, bool) {
	boot, err := r.bootKey(agent)
	if err != nil {
		return nil, false
	}
	tools, tm, ok1 := s.find("tools", r.keys["tools"])
	image, im, ok2 := s.find("image", r.keys["image"])
	bootDir, _, ok3 := s.find("boot", boot)
	if !ok1 || !ok2 || !ok3 {
		return nil, false
	}
	return artifacts(tools, image, bootDir, tm, im), true
}

func (r *recipe) build(ctx context.Context, s *store, agent []byte) (*Artifacts, error) {
	boot, err := r.bootKey(agent)
	if err != nil {
		return nil, err
	}
	var mirror, conf string
	var env []string
	online := func(make func(*build) error) func(*build) error {
		return func(b *build) error {
			if mirror == "" {
				if mirror, err = findMirror(ctx, s.p); err != nil {
					return err
				}
				conf, env = aptProxies(ctx)
			}
			b.mirror, b.aptConf, b.env = mirror, conf, env
			return b.persist(make)
		}
	}
	base := ""
	_, _, haveTools := s.find("tools", r.keys["tools"])
	_, _, haveImage := s.find("image", r.keys["image"])
	if !haveTools || !haveImage {
		if err := enoughSpace(s.dir); err != nil {
			return nil, err
		}
		s.p.Sayf("building the guest lab in %s; the first time takes some minutes, logs are in %s/logs", s.dir, s.dir)
		if base, _, err = s.component(ctx, "base", r.keys["base"], online(r.buildBase)); err != nil {
			return nil, err
		}
	}
	tools, tm, err := s.component(ctx, "tools", r.keys["tools"], online(r.buildTools(base)))
	if err != nil {
		return nil, err
	}
	image, im, err := s.component(ctx, "image", r.keys["image"], online(r.buildImage(base)))
	if err != nil {
		return nil, err
	}
	bootDir, _, err := s.component(ctx, "boot", boot, buildBoot(agent, tools, image))
	if err != nil {
		return nil, err
	}
	return artifacts(tools, image, bootDir, tm, im), nil
}

func artifacts(tools, image, boot string, manifests ...*Manifest) *Artifacts {
	a := &Artifacts{Tree: filepath.Join(tools, "tree"), Image: image, Boot: boot,
		Kernel: filepath.Join(image, "vmlinuz"), Initramfs: filepath.Join(boot, "initramfs"),
		Unpacked: filepath.Join(boot, "vmlinux"), Disk: filepath.Join(image, "guest.img"), Versions: map[string]string{}}
	for _, m := range manifests {
		for k, v := range m.Versions {
			a.Versions[k] = v
		}
	}
	return a
}
