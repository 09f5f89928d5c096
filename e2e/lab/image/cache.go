// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Manifest describes a built component. It lies in its directory as
// manifest.json.
type Manifest struct {
	Component string            `json:"component"`
	Key       string            `json:"key"`
	Built     time.Time         `json:"built"`
	Seconds   float64           `json:"seconds"`  // how long it took
	Versions  map[string]string `json:"versions"` // what the patterns of the pin file met
}

const manifestName = "manifest.json"

// Dir is where the lab is kept: "ernic/lab" in the user's cache directory.
func Dir() (string, error) {
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("guest lab: no place for its cache: %w", err)
	}
	return filepath.Join(d, "ernic", "lab"), nil
}

// key hashes the inputs of a component.
type key struct{ h hash.Hash }

func newKey(component string) *key {
	k := &key{sha256.New()}
	return k.add("component", []byte(component))
}

// add appends one named input. Lengths keep neighbours apart.
func (k *key) add(name string, b []byte) *key {
	_, _ = fmt.Fprintf(k.h, "%d %s %d\n", len(name), name, len(b)) // a hash never fails
	k.h.Write(b)
	return k
}

func (k *key) String() string { return hex.EncodeToString(k.h.Sum(nil))[:16] }

// store is the cache directory.
type store struct {
	dir string
	p   *Progress
}

// find returns a component that is already built.
func (s *store) find(component, key string) (string, *Manifest, bool) {
	dir := filepath.Join(s.dir, component+"-"+key)
	m, err := readManifest(dir)
	return dir, m, err == nil && m.Key == key
}

func readManifest(dir string) (*Manifest, error) {
	b, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, manifestName), err)
	}
	return &m, nil
}

// lock takes the build lock, waiting for another process that builds.
func (s *store) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Join(s.dir, "logs"), 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !said {
			s.p.Sayf("another process builds the lab, waiting for it (%s)", path)
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for the process that builds the lab: %w", context.Cause(ctx))
		}
	}
}

// build is a component in the making.
type build struct {
	ctx      context.Context
	p        *Progress
	log      *buildLog
	dir      string // temporary directory that becomes the component
	versions map[string]string
	env      []string // for programs that fetch something
	mirror   string
	aptConf  string
}

// component returns the directory of a component, building it if need be. The
// lock is held.
func (s *store) component(ctx context.Context, name, key string, make func(*build) error) (string, *Manifest, error) {
	dir, m, ok := s.find(name, key)
	if ok {
		return dir, m, nil
	}
	if err := s.sweep(name, dir); err != nil {
		return "", nil, err
	}
	logPath := filepath.Join(s.dir, "logs", name+"-"+key+".log")
	f, err := os.Create(logPath)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = f.Close() }()
	tmp, err := os.MkdirTemp(s.dir, "tmp-"+name+"-")
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // the trees in it serve other users too
		return "", nil, err
	}
	start := time.Now()
	b := &build{ctx: ctx, p: s.p, dir: tmp, versions: map[string]string{}, log: &buildLog{path: logPath, w: f}}
	if err := make(b); err != nil {
		if ctx.Err() != nil {
			return "", nil, fmt.Errorf("build the lab's %s: %w", name, context.Cause(ctx))
		}
		return "", nil, fmt.Errorf("build the lab's %s: %w\nlast lines of %s:\n%s", name, err, logPath, b.log.end(15))
	}
	m = &Manifest{Component: name, Key: key, Built: time.Now().UTC().Truncate(time.Second),
		Seconds: time.Since(start).Round(100 * time.Millisecond).Seconds(), Versions: b.versions}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return "", nil, err
	}
	if err := os.WriteFile(filepath.Join(tmp, manifestName), append(text, '\n'), 0o644); err != nil {
		return "", nil, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", nil, err
	}
	s.p.Sayf("%s is ready after %.0f s", name, m.Seconds)
	return dir, m, nil
}

// sweep removes what an interrupted build of the component left, and a
// directory at its place that is not complete.
func (s *store) sweep(name, dir string) error {
	old, err := filepath.Glob(filepath.Join(s.dir, "tmp-"+name+"-*"))
	if err != nil {
		return err
	}
	for _, d := range append(old, dir) {
		if err := os.RemoveAll(d); err != nil {
			return fmt.Errorf("remove an incomplete build: %w", err)
		}
	}
	return nil
}

// Component is one entry of the cache.
type Component struct {
	Dir      string
	Manifest *Manifest // nil if the entry is incomplete
}

// List returns what the cache holds.
func List() ([]Component, error) {
	root, err := Dir()
	if err != nil {
		return nil, err
	}
	return (&store{dir: root}).list()
}

func (s *store) list() ([]Component, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Component
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "logs" || !strings.Contains(e.Name(), "-") {
			continue
		}
		dir := filepath.Join(s.dir, e.Name())
		m, err := readManifest(dir)
		if err != nil {
			m = nil
		}
		out = append(out, Component{Dir: dir, Manifest: m})
	}
	return out, nil
}

// Hold keeps the artifacts from being cleaned away until release is called or
// this process ends.
func (a *Artifacts) Hold() (release func(), err error) {
	var held []*os.File
	release = func() {
		for _, f := range held {
			_ = f.Close()
		}
	}
	for _, dir := range []string{filepath.Dir(a.Tree), a.Image, a.Boot} {
		f, err := os.Open(filepath.Join(dir, manifestName))
		if err == nil {
			held = append(held, f)
			err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		}
		if err != nil {
			release()
			return nil, fmt.Errorf("guest lab: %s is being removed: %w", dir, err)
		}
	}
	return release, nil
}

// removeUnlessHeld removes a component that no lab uses.
func removeUnlessHeld(dir string) (removed bool, err error) {
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err == nil {
		defer func() { _ = f.Close() }()
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, os.RemoveAll(dir)
}

// Clean removes components from the cache that no lab uses: all of them, or
// those that Prepare would not use now. It returns what it removed.
func Clean(ctx context.Context, p *Progress, all bool) ([]string, error) {
	root, err := Dir()
	if err != nil {
		return nil, err
	}
	s := &store{dir: root, p: p}
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	keep := map[string]bool{}
	if !all {
		r, err := newRecipe()
		if err != nil {
			return nil, err
		}
		agent, err := compileAgent(ctx)
		if err != nil {
			return nil, err
		}
		if r.keys["boot"], err = r.bootKey(agent); err != nil {
			return nil, err
		}
		for name, key := range r.keys {
			keep[name+"-"+key] = true
		}
	}
	return s.clean(keep)
}

func (s *store) clean(keep map[string]bool) (removed []string, err error) {
	list, err := s.list()
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if keep[filepath.Base(c.Dir)] {
			continue
		}
		gone, err := removeUnlessHeld(c.Dir)
		switch {
		case err != nil:
			return removed, err
		case gone:
			removed = append(removed, c.Dir)
		default:
			s.p.Sayf("%s is in use and stays", c.Dir)
		}
	}
	return removed, nil
}
