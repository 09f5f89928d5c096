// SPDX-License-Identifier: Apache-2.0

// Package labtest opens labs for tests: closed when the test ends, with the
// logs of guests and programs shown when it failed.
package labtest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
)

// New opens a lab for t. Progress goes to standard error, because the first
// lab on a machine takes minutes.
func New(t testing.TB, o lab.Options) *lab.Lab {
	t.Helper()
	if o.Progress == nil {
		o.Progress = image.NewProgress(os.Stderr)
	}
	l, err := lab.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			// The test's own context has ended by now.
			t.Log(l.Diagnose(context.Background()))
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Boot boots guests in a lab or fails the test.
func Boot(t testing.TB, l *lab.Lab, cfgs ...guest.Config) []*guest.Guest {
	t.Helper()
	guests, err := l.Boot(t.Context(), cfgs...)
	if err != nil {
		t.Fatal(err)
	}
	return guests
}

// Run runs a shell script in a guest, bounded by two minutes, and returns its
// standard output without white space around it. A failing script fails the
// test.
func Run(t testing.TB, g *guest.Guest, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := g.Run(ctx, guest.Shell(script))
	if err != nil {
		t.Fatal(err)
	}
	return r.Output()
}
