// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/manager"
)

// issue makes a certificate with the program and returns the flags that it prints.
func issue(t *testing.T, dir, role, name string) []string {
	t.Helper()
	status, out, errs := ernictl(t, "pki", "issue", role, name, "--pki-dir", dir)
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	return strings.Fields(out)
}

// TestS3_PKIMakesASiteThatWorks makes a site with the commands of the manual, and uses it.
func TestS3_PKIMakesASiteThatWorks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if status, _, errs := ernictl(t, "pki", "init", "--pki-dir", dir); status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	var server cli.TLS
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	server.AddFlags(fs, identity.Manager)
	if err := fs.Parse(issue(t, dir, "manager", "head")); err != nil {
		t.Fatal(err)
	}
	creds, err := server.Server()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(manager.Config{Log: zerolog.Nop(), Name: "head"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Serve(ctx, l, grpc.Creds(creds)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	at := []string{"nodes", "--manager", l.Addr().String()}
	if status, out, errs := ernictl(t, append(at, issue(t, dir, "operator", "alice")...)...); status != 0 || !strings.Contains(out, "head") {
		t.Errorf("the operator: status %d, %s%s", status, out, errs)
	}
	if status, _, errs := ernictl(t, append(at, issue(t, dir, "worker", "w")...)...); status != 1 || !strings.Contains(errs, "of worker w, and here one of the role operator is needed") {
		t.Errorf("with a worker's certificate: status %d, %s", status, errs)
	}
	if status, _, errs := ernictl(t, at...); status != 1 {
		t.Errorf("in the clear: status %d, %s", status, errs)
	}
}

func TestPKIShowTellsWhoAndUntilWhen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if status, _, errs := ernictl(t, "pki", "show", "--pki-dir", dir); status != 1 || !strings.Contains(errs, "pki init") {
		t.Errorf("of nothing: status %d, %s", status, errs)
	}
	ernictl(t, "pki", "init", "--pki-dir", dir, "--name", "lab")
	issue(t, dir, "worker", "host7")
	if status, _, errs := ernictl(t, "pki", "issue", "operator", "bob", "--days", "9", "--pki-dir", dir); status != 0 {
		t.Fatal(errs)
	}
	status, out, errs := ernictl(t, "pki", "show", "--pki-dir", dir, "-o", "json")
	var shown []shownCertificate
	if err := json.Unmarshal([]byte(out), &shown); status != 0 || err != nil || len(shown) != 3 {
		t.Fatalf("status %d, %v, %s%s", status, err, out, errs)
	}
	for i, want := range []shownCertificate{
		{Role: "authority", Name: "lab", State: "valid"},
		{Role: "operator", Name: "bob", State: "expires-soon"},
		{Role: "worker", Name: "host7", State: "valid"},
	} {
		if got := shown[i]; got.Role != want.Role || got.Name != want.Name || got.State != want.State || got.Issuer != "lab" {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	host7 := filepath.Join(dir, "worker-host7.crt")
	if status, out, errs := ernictl(t, "pki", "revoke", host7, "--pki-dir", dir); status != 0 || !strings.Contains(out, "1 certificates are revoked; copy "+dir) {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	if _, out, _ := ernictl(t, "pki", "show", host7, "--pki-dir", dir); !strings.Contains(out, "revoked") {
		t.Errorf("after it was revoked: %s", out)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := ernictl(t, "pki", "show", text); status != 1 || !strings.Contains(errs, text) {
		t.Errorf("of text: status %d, %s", status, errs)
	}
}

func TestPKIMistakesAreNamed(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"pki", "issue", "worker", "w"}, 1, "ca.crt"},
		{[]string{"pki", "issue", "root", "w"}, 2, `"root" is no role`},
		{[]string{"pki", "issue", "worker", "a b"}, 2, "only letters"},
		{[]string{"pki", "issue", "worker"}, 2, "accepts 2 arg"},
		{[]string{"pki", "init", "--days", "0"}, 2, "--days 0"},
		{[]string{"pki", "nothing"}, 2, "unknown command"},
		{[]string{"pki", "revoke"}, 2, "requires at least 1 arg"},
		{[]string{"pki", "revoke", "x.crt"}, 1, "ca.crt"},
	} {
		status, _, errs := ernictl(t, append(tc.args, "--pki-dir", dir)...)
		if status != tc.status || !strings.Contains(errs, tc.want) {
			t.Errorf("%v: status %d, %s", tc.args, status, errs)
		}
	}
}
