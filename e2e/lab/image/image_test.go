// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestPinFileIsComplete(t *testing.T) {
	p, err := parsePins(pinFile)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(p.Guest.Packages, " "), "perftest") {
		t.Error("the guest has no perftest")
	}
}

func TestPinFileErrorsNameTheField(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"missing field":   {"qemu_minimum: \"10.1\"", "", "tools.qemu_minimum"},
		"unknown field":   {"suite: sid", "siute: sid", "siute"},
		"no group":        {`(7\.[0-9.]+\+deb14-amd64)`, `7\.[0-9.]+\+deb14-amd64`, "kernel.image"},
		"broken pattern":  {`(7\.[0-9.]+`, `(7\.[0-9.+`, "kernel.image"},
		"disk of nothing": {"disk: 4096", "disk: 0", "guest.disk"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(string(pinFile), c.old, c.new, 1)
			if text == string(pinFile) {
				t.Fatalf("the pin file has no %q", c.old)
			}
			if _, err := parsePins([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that names %s", err, c.want)
			}
		})
	}
}

func FuzzParsePins(f *testing.F) {
	f.Add(pinFile)
	f.Add([]byte("base: {suite: sid}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePins(b)
		if err == nil && regexp.MustCompile(p.Kernel.Image).NumSubexp() != 1 {
			t.Errorf("accepted a kernel pattern without a group: %q", p.Kernel.Image)
		}
	})
}

func TestKeyFollowsEachInput(t *testing.T) {
	base := func() (*pins, map[string][]byte) {
		p, err := parsePins(pinFile)
		if err != nil {
			t.Fatal(err)
		}
		patches := map[string][]byte{}
		for _, n := range append(p.Kernel.Patches, p.Provider.Patches...) {
			patches[n] = []byte("patch " + n)
		}
		return p, patches
	}
	keysOf := func(change func(*pins, map[string][]byte)) map[string]string {
		p, patches := base()
		change(p, patches)
		k, err := componentKeys(p, patches)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	same := keysOf(func(*pins, map[string][]byte) {})
	if again := keysOf(func(*pins, map[string][]byte) {}); fmt.Sprint(again) != fmt.Sprint(same) {
		t.Fatalf("the same inputs give %v and %v", same, again)
	}
	for name, c := range map[string]struct {
		change  func(*pins, map[string][]byte)
		changed string
	}{
		"suite":          {func(p *pins, _ map[string][]byte) { p.Base.Suite = "forky" }, "base tools image"},
		"qemu package":   {func(p *pins, _ map[string][]byte) { p.Tools.Packages = nil }, "tools"},
		"guest package":  {func(p *pins, _ map[string][]byte) { p.Guest.Packages = append(p.Guest.Packages, "vim") }, "image"},
		"kernel pattern": {func(p *pins, _ map[string][]byte) { p.Kernel.Image += "x" }, "image"},
		"kernel patch":   {func(p *pins, m map[string][]byte) { m[p.Kernel.Patches[0]] = nil }, "image"},
		"provider patch": {func(p *pins, m map[string][]byte) { m[p.Provider.Patches[1]] = []byte("other") }, "image"},
	} {
		t.Run(name, func(t *testing.T) {
			got := keysOf(c.change)
			for _, component := range []string{"base", "tools", "image"} {
				if want := strings.Contains(c.changed, component); (got[component] != same[component]) != want {
					t.Errorf("key of %s changed: %v, want %v", component, !want, want)
				}
			}
		})
	}
}

func TestKeyKeepsNeighboursApart(t *testing.T) {
	if a, b := newKey("x").add("n", []byte("ab")).add("m", nil), newKey("x").add("n", []byte("a")).add("bm", nil); a.String() == b.String() {
		t.Error("two different lists of inputs have one key")
	}
}

func TestNewestKernelWins(t *testing.T) {
	p, err := parsePins(pinFile)
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(p.Kernel.Image)
	names := []string{
		"linux-image-7.2.9+deb14-amd64", "linux-image-7.10.1+deb14-amd64", "linux-image-7.2.13+deb14-amd64",
		"linux-image-7.11.1+deb14-cloud-amd64", "linux-image-7.11.1+deb14-rt-amd64", "linux-image-7.11.1+deb14-amd64-dbg",
		"linux-image-amd64", "linux-image-6.19.1+deb14-amd64",
	}
	name, version, ok := newestMatch(pattern, names)
	if !ok || name != "linux-image-7.10.1+deb14-amd64" || version != "7.10.1+deb14-amd64" {
		t.Errorf("got %q, %q, %v", name, version, ok)
	}
	if _, _, ok := newestMatch(pattern, names[3:]); ok {
		t.Error("a kernel without ionic was taken")
	}
}

func TestCompareVersions(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"11.1.3", "10.1", 1}, {"10.1", "10.1.0", 0}, {"9.2", "10.1", -1}, {"7.2.13+deb14", "7.2.9+deb14", 1},
		{"", "1", -1}, {"65.0", "65.0", 0}, {"99999999999999999999", "1", 1},
	} {
		if got := compareVersions(c.a, c.b); got != c.want {
			t.Errorf("compareVersions(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
	if got := majorMinor("7.2.13+deb14-amd64"); got != "7.2" {
		t.Errorf("majorMinor: %q", got)
	}
	for in, want := range map[string]string{"65.0-1.1": "65.0", "1:11.1.3+ds-1": "11.1.3", "2:7.2-1": "7.2", "3": "3"} {
		if got := upstreamVersion(in); got != want {
			t.Errorf("upstreamVersion(%q) = %q, want %q", in, got, want)
		}
	}
	if got := qemuVersion("QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1)\nCopyright"); got != "11.1.3" {
		t.Errorf("qemuVersion: %q", got)
	}
	if got := qemuVersion("no such thing"); got != "" {
		t.Errorf("qemuVersion of nonsense: %q", got)
	}
}

func TestMirrorIsDebianProper(t *testing.T) {
	targets := "https://packages.example/apt/ other\n" +
		"http://mirror.example/debian-security/ Debian-Security\n" +
		"file:/srv/debian/ Debian\n" +
		"http://mirror.example/debian/ Debian\n" +
		"http://second.example/debian/ Debian\n"
	if got := mirrorFrom(targets); got != "http://mirror.example/debian" {
		t.Errorf("got %q", got)
	}
	if got := mirrorFrom("http://mirror.example/debian/\n"); got != "" {
		t.Errorf("a repository without a label was taken: %q", got)
	}
}

func TestMissingToolsNamesPackagesOnce(t *testing.T) {
	absent := map[string]bool{"debootstrap": true, "ip": true, "bridge": true}
	got := missingTools(func(name string) error {
		if absent[name] {
			return errors.New("absent")
		}
		return nil
	})
	if strings.Join(got, " ") != "debootstrap iproute2" {
		t.Errorf("got %v", got)
	}
}

// testStore is a cache of its own for one test.
func testStore(t *testing.T) (*store, *bytes.Buffer) {
	var out bytes.Buffer
	s := &store{dir: t.TempDir(), p: NewProgress(&out)}
	unlock, err := s.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	return s, &out
}

func TestComponentIsBuiltOnce(t *testing.T) {
	s, _ := testStore(t)
	built := 0
	build := func(b *build) error {
		built++
		b.versions["thing"] = "7"
		return os.WriteFile(filepath.Join(b.dir, "thing"), []byte("x"), 0o644)
	}
	for range 3 {
		dir, m, err := s.component(t.Context(), "thing", "k1", build)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "thing")); err != nil || m.Versions["thing"] != "7" {
			t.Errorf("the component lacks its content: %v, %v", err, m)
		}
	}
	if built != 1 {
		t.Errorf("built %d times", built)
	}
	if _, _, err := s.component(t.Context(), "thing", "k2", build); err != nil || built != 2 {
		t.Errorf("another key: built %d times, %v", built, err)
	}
}

func TestFailedBuildLeavesNothingButItsLog(t *testing.T) {
	s, _ := testStore(t)
	_, _, err := s.component(t.Context(), "thing", "k", func(b *build) error {
		for i := range 100 {
			b.log.printf("line %d", i)
		}
		if err := os.WriteFile(filepath.Join(b.dir, "half"), nil, 0o644); err != nil {
			return err
		}
		return errors.New("the compiler is broken")
	})
	if err == nil {
		t.Fatal("no error")
	}
	log := filepath.Join(s.dir, "logs", "thing-k.log")
	for _, want := range []string{"the compiler is broken", log, "line 99"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "line 10\n") {
		t.Error("the error repeats the whole log")
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "logs" && e.Name() != "lock" {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func TestInterruptedBuildIsSweptAndDoneAgain(t *testing.T) {
	s, _ := testStore(t)
	for _, d := range []string{"tmp-thing-123/deep", "thing-k/half"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, _, err := s.component(t.Context(), "thing", "k", func(b *build) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{filepath.Join(s.dir, "tmp-thing-123"), filepath.Join(dir, "half")} {
		if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
}

func TestCleanSparesWhatIsKeptOrInUse(t *testing.T) {
	s, out := testStore(t)
	dirs := map[string]string{}
	for _, name := range []string{"tools", "image", "boot", "base", "stale"} {
		dir, _, err := s.component(t.Context(), name, "k", func(*build) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		dirs[name] = dir
	}
	a := &Artifacts{Tree: filepath.Join(dirs["tools"], "tree"), Image: dirs["image"], Boot: dirs["boot"]}
	release, err := a.Hold()
	if err != nil {
		t.Fatal(err)
	}
	removed, err := s.clean(map[string]bool{"base-k": true})
	if err != nil || len(removed) != 1 || removed[0] != dirs["stale"] {
		t.Errorf("removed %v, %v; want the stale one", removed, err)
	}
	if !strings.Contains(out.String(), "in use") {
		t.Errorf("nothing was said of those in use: %q", out.String())
	}
	release()
	if removed, err = s.clean(nil); err != nil || len(removed) != 4 {
		t.Errorf("removed %v, %v; want all four", removed, err)
	}
	if _, err := a.Hold(); err == nil {
		t.Error("artifacts that are gone can be held")
	}
}

func TestSecondBuilderWaitsAndSaysSo(t *testing.T) {
	first, _ := testStore(t)
	var out bytes.Buffer
	second := &store{dir: first.dir, p: NewProgress(&out)}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := second.lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the lock was given twice: %v", err)
	}
	if !strings.Contains(out.String(), "waiting") {
		t.Errorf("nothing was said: %q", out.String())
	}
}

func TestInitramfsUnpacksToWhatWentIn(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"order": "b.ko\na.ko\n", "a.ko": "module a", "b.ko": "module bb"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := initramfs([]byte("agent"), dir)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := writeCPIO(&archive, files); err != nil {
		t.Fatal(err)
	}
	got := readCPIO(t, archive.Bytes())
	want := []string{
		"init 100755 agent", "modules 40755 ", "modules/order 100644 b.ko\na.ko\n",
		"modules/b.ko 100644 module bb", "modules/a.ko 100644 module a", "TRAILER!!! 100000 ",
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// readCPIO takes an archive apart by the format's own rules.
func readCPIO(t *testing.T, b []byte) (entries []string) {
	t.Helper()
	for len(b) > 0 {
		var field [13]int
		if len(b) < 110 || string(b[:6]) != "070701" {
			t.Fatalf("no header where one must be, %d bytes before the end", len(b))
		}
		for i := range field {
			if _, err := fmt.Sscanf(string(b[6+8*i:14+8*i]), "%x", &field[i]); err != nil {
				t.Fatal(err)
			}
		}
		align := func(n int) int { return (n + 3) &^ 3 }
		size, nameSize := field[6], field[11]
		name := b[110 : 110+nameSize]
		if name[nameSize-1] != 0 {
			t.Fatalf("name %q does not end", name)
		}
		data := b[align(110+nameSize):]
		entries = append(entries, fmt.Sprintf("%s %o %s", name[:nameSize-1], field[1], data[:size]))
		b = data[align(size):]
	}
	return entries
}

func TestLongStageShowsTheLogsLastLine(t *testing.T) {
	l := &buildLog{w: &bytes.Buffer{}}
	if got := l.lastLine(); got != "" {
		t.Errorf("an empty log ends with %q", got)
	}
	l.printf("first")
	l.printf("10%%\r50%%\rsecond")
	if got := l.lastLine(); got != "second" {
		t.Errorf("last line %q", got)
	}
	l.printf("%s", strings.Repeat("x", 3*tailSize))
	if len(l.tail) > tailSize {
		t.Errorf("%d bytes are kept", len(l.tail))
	}
	if got := l.lastLine(); len(got) > 110 {
		t.Errorf("a line of %d bytes is shown whole", len(got))
	}
}
