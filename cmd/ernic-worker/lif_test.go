// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/worker"
)

// configOf is what a command line makes of the LIF.
func configOf(t *testing.T, args string) (worker.Config, error) {
	t.Helper()
	set, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	f := flags{socket: "/run/x.sock", socketMode: "0660", listen: "127.0.0.1:0", fabric: "mesh", manager: "127.0.0.1:6320", relay: "on"}
	f.observe.addFlags(&cobra.Command{}) // the defaults
	for _, a := range strings.Fields(args) {
		name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		switch name {
		case "lif":
			f.lif = value
		case "tap":
			f.tap = value
		case "fabric":
			f.fabric = value
		}
	}
	return f.config(set)
}

func TestLIF_WhatTheFlagsMean(t *testing.T) {
	for _, tc := range []struct {
		args string
		lif  worker.LIFKind
		tap  string
	}{
		{"", worker.LIFNone, ""},
		{"--lif=none", worker.LIFNone, ""},
		{"--lif=mesh", worker.LIFMesh, ""},
		{"--lif=tap:ernic0", worker.LIFTAP, "ernic0"},
		{"--tap=ernic0", worker.LIFTAP, "ernic0"},
		{"--tap=ernic0 --fabric=loopback", worker.LIFTAP, "ernic0"},
	} {
		c, err := configOf(t, tc.args)
		if err != nil || c.LIF != tc.lif || c.TAP != tc.tap {
			t.Errorf("%q: LIF %s, TAP %q, %v", tc.args, c.LIF, c.TAP, err)
		}
	}
}

func TestLIF_RefusesByName(t *testing.T) {
	for args, want := range map[string]string{
		"--lif=tap:":                   `--lif "tap:" is none of tap:NAME, mesh, none`,
		"--lif=bridge":                 `--lif "bridge" is none of tap:NAME, mesh, none`,
		"--lif=tap:a --tap=a":          "--lif tap:a and --tap a: give one of them",
		"--lif=none --tap=a":           "--lif none and --tap a: give one of them",
		"--lif=mesh --fabric=loopback": "--lif mesh needs --fabric mesh, not loopback",
	} {
		if _, err := configOf(t, args); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}
