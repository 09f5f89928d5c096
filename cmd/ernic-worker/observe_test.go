// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/worker"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

func parseObserve(t *testing.T, args ...string) (worker.Observe, error) {
	t.Helper()
	var o observe
	c := &cobra.Command{}
	o.addFlags(c)
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return o.config()
}

func TestObserve_WhatTheFlagsMean(t *testing.T) {
	for _, c := range []struct {
		args string
		want worker.Observe
	}{
		{"", worker.Observe{StatsFormat: section.Text, Metrics: "127.0.0.1:9840", MetricsIfFree: true}},
		{"--metrics-listen 127.0.0.1:9840", worker.Observe{StatsFormat: section.Text, Metrics: "127.0.0.1:9840"}},
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

func TestObserve_RefusesByName(t *testing.T) {
	for args, want := range map[string]string{
		"--stats-format xml":         `--stats-format "xml" is none of text, json`,
		"--stats-qps -1":             "--stats-qps -1 is not between 0 and 4096",
		"--stats-qps 5000":           "--stats-qps 5000 is not between 0 and 4096",
		"--metrics-listen 9840":      `--metrics-listen "9840" is neither host:port nor off`,
		"--metrics-listen host:http": `--metrics-listen "host:http": "http" is no port`,
	} {
		if _, err := parseObserve(t, strings.Fields(args)...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}
