// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/fabric/pki"
	"github.com/ernic-dev/ernic/worker"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

func parseObserve(t *testing.T, args ...string) (worker.Observe, error) {
	t.Helper()
	var o observe
	var protection cli.TLS
	var insecure bool
	c := &cobra.Command{}
	o.addFlags(c)
	protection.AddFlags(c.Flags(), identity.Worker)
	c.Flags().BoolVar(&insecure, "insecure", false, "")
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return o.config(&protection, insecure)
}

func TestObserve_WhatTheFlagsMean(t *testing.T) {
	for _, c := range []struct {
		args string
		want worker.Observe
	}{
		{"", worker.Observe{StatsFormat: section.Text, Metrics: "127.0.0.1:9840", MetricsIfFree: true}},
		{"--metrics-listen 127.0.0.1:9840", worker.Observe{StatsFormat: section.Text, Metrics: "127.0.0.1:9840"}},
		{"--metrics-listen 192.0.2.1:9840 --insecure", worker.Observe{StatsFormat: section.Text, Metrics: "192.0.2.1:9840"}},
		{"--metrics-listen off --stats-file /run/s --stats-format json --stats-qps 9", worker.Observe{
			StatsFile: "/run/s", StatsFormat: section.JSON, StatsQPs: 9,
		}},
	} {
		got, err := parseObserve(t, strings.Fields(c.args)...)
		if err != nil || got != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.args, got, err, c.want)
		}
	}
}

// Certificates protect what other hosts reach; Prometheus on the host needs none.
func TestS1_MetricsForOtherHostsAreProtected(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Init(dir, "test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.Issue(pki.Request{Identity: identity.Identity{Role: identity.Worker, Name: "host7"}, Validity: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for address, protected := range map[string]bool{"127.0.0.1:9840": false, "192.0.2.1:9840": true, "0.0.0.0:9840": true} {
		c, err := parseObserve(t, "--metrics-listen", address, "--tls-cert", issued.Cert, "--tls-key", issued.Key,
			"--tls-ca", filepath.Join(dir, pki.CertFile))
		if err != nil || (c.MetricsTLS != nil) != protected {
			t.Errorf("%s: protected %v, want %v; %v", address, c.MetricsTLS != nil, protected, err)
		}
	}
	if _, err := parseObserve(t, "--metrics-listen", "192.0.2.1:9840", "--tls-ca", filepath.Join(dir, "missing")); err == nil {
		t.Error("certificates that are not there protect")
	}
}

func TestObserve_RefusesByName(t *testing.T) {
	for args, want := range map[string]string{
		"--stats-format xml":              `--stats-format "xml" is none of text, json`,
		"--stats-qps -1":                  "--stats-qps -1 is not between 0 and 4096",
		"--stats-qps 5000":                "--stats-qps 5000 is not between 0 and 4096",
		"--metrics-listen 9840":           `--metrics-listen "9840" is neither host:port nor off`,
		"--metrics-listen host:http":      `--metrics-listen "host:http": "http" is no port`,
		"--metrics-listen 192.0.2.1:9840": "--metrics-listen 192.0.2.1:9840 can be reached by other hosts in the clear: give --tls-cert, --tls-key and --tls-ca, or --insecure",
		"--metrics-listen :9840":          "--metrics-listen :9840 can be reached by other hosts in the clear",
	} {
		if _, err := parseObserve(t, strings.Fields(args)...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}
