// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/conformance"
	"github.com/ernic-dev/ernic/e2e/guest/verbs"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
)

// verbsDir is where the verbs program is in a guest.
const verbsDir = "/root/verbs"

// verbsPatience is how long one check may take.
const verbsPatience = 5 * time.Minute

// TestVerbs runs the checks of e2e/guest/verbs between the guests with the
// patched provider: each verb and each status once, in the long tier all of
// them. There they run inside one guest, inside one process, and with the
// released provider too.
func TestVerbs(t *testing.T) {
	for _, n := range two.Nodes {
		upload(t, n.Guest, verbs.Files(), verbsDir)
	}
	a, b := two.Nodes[0], two.Nodes[1]
	for _, c := range []struct {
		group   string
		b       *site.Node // nil: both sides in one process
		options string     // in the long tier
		env     []string
		tier    tier
	}{
		{"verbs, guest to guest", b, "--long", []string{guest.PatchedProvider}, always},
		{"verbs, in one guest", a, "--usual", []string{guest.PatchedProvider}, longOnly},
		{"verbs, in one process", nil, "--usual", []string{guest.PatchedProvider}, longOnly},
		{"verbs, released provider", b, "--usual --stock", nil, longOnly},
	} {
		if !c.tier.runs() {
			continue
		}
		if !*long {
			c.options = ""
		}
		t.Run(c.group, func(t *testing.T) { runVerbs(t, c.group, a, c.b, c.options, c.env) })
	}
}

// upload writes the files of a file system to a directory of a guest.
func upload(t *testing.T, g *guest.Guest, files fs.FS, dir string) {
	t.Helper()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return g.Upload(t.Context(), dir+"/"+path, 0o644, bytes.NewReader(b))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// verdict is a line of the verbs program.
type verdict struct {
	Name    string
	OK      bool
	Text    string
	Seconds float64
}

// runVerbs runs the program with its server in the guest of a and its client in
// that of b; with no b both sides are in one process. Each check is a subtest.
func runVerbs(t *testing.T, group string, a, b *site.Node, options string, env []string) {
	ctx, cancel := context.WithCancel(t.Context())
	port, client := (&site.Pair{}).Port(), "self 0"
	if b != nil {
		sv, err := a.Guest.Start(ctx, guest.Shellf("cd %s && exec python3 main.py serve %d", verbsDir, port).With(env...))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if r, err := sv.Wait(); err != nil && t.Failed() {
				t.Logf("server: %v\n%s", err, r.Stderr)
			}
		}()
		defer cancel()
		must(t, a.Guest, fmt.Sprintf("for i in $(seq 900); do ss -Hltn 'sport = :%d' | grep -q . && exit 0; sleep 0.1; done; exit 1", port))
		client = fmt.Sprintf("%s %d", a.IP, port)
	} else {
		b = a
		defer cancel()
	}
	found.Renew(group)
	count := 0
	r, err := follow(t, b.Guest, guest.Shellf("cd %s && exec python3 main.py run %s %s", verbsDir, client, options).With(env...),
		verbsPatience, func(line string) {
			var v verdict
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Errorf("no verdict: %q", line)
				return
			}
			count++
			t.Run(v.Name, func(t *testing.T) {
				if !v.OK {
					t.Error(v.Text)
				}
			})
			found.Add(conformance.Result{Group: group, Name: v.Name, Failed: !v.OK, Note: v.Text, Took: time.Duration(v.Seconds * float64(time.Second))})
		})
	if err != nil && !t.Failed() {
		t.Errorf("%v\n%s", err, r.Stderr)
	}
	if count == 0 {
		t.Error("no check ran")
	}
	if err := keepResults(); err != nil {
		t.Error(err)
	}
}
