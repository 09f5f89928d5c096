// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/conformance"
	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
)

var long = flag.Bool("long", false, "run all conformance cases, not only the representative ones of each group")

// tier says in which of the two tiers a conformance case runs.
type tier bool

const (
	always   tier = true  // in both
	longOnly tier = false // in the long one
)

func (s tier) runs() bool { return bool(s) || *long }

// conform runs a conformance case as a subtest and enters it into the report,
// with the note f returns beside the verdict.
func conform(t *testing.T, group, name string, f func(t *testing.T) (note string)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		begun := time.Now()
		var note string
		defer func() {
			found.Add(conformance.Result{Group: group, Name: name, Failed: t.Failed(), Note: note, Took: time.Since(begun)})
			if err := keepResults(); err != nil {
				t.Error(err)
			}
		}()
		note = f(t)
	})
}

// between runs programs with the server in the guest of one node and the client
// in that of another, or the same.
func between(server, client *site.Node, env ...string) *site.Pair {
	return &site.Pair{Server: server.Guest, Client: client.Guest, Env: env, Patience: 5 * time.Minute}
}

// run runs a server and a client and fails the test when either fails.
func run(t *testing.T, p *site.Pair, port int, server, client string) site.Outcome {
	t.Helper()
	o, err := p.Run(t.Context(), port, server, client)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const mtuScript = `
ip link set eth0 mtu %d
for i in $(seq 300); do
  ibv_devinfo -v | grep -q '%s' && ibv_devinfo | grep -q 'active_mtu:.*%d' && exit 0
  sleep 0.1
done
ibv_devinfo
exit 1
`

// setMTU gives the guests' interfaces, and what lies between them, an MTU that
// holds RDMA packets of path bytes, until the end of the test.
func setMTU(t *testing.T, mtu, path int) {
	t.Helper()
	if err := applyMTU(t.Context(), mtu, path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := applyMTU(ctx, 1500, 1024); err != nil {
			t.Error(err)
		}
	})
}

func applyMTU(ctx context.Context, mtu, path int) error {
	for _, dev := range []string{two.Nodes[0].TAP, two.Nodes[1].TAP, lab.Bridge} {
		if _, err := two.Lab.Run(ctx, "ip", "link", "set", dev, "mtu", fmt.Sprint(mtu)); err != nil {
			return err
		}
	}
	for _, n := range two.Nodes {
		if _, err := n.Guest.Run(ctx, guest.Shellf(mtuScript, mtu, "::ffff:"+n.IP, path)); err != nil {
			return err
		}
	}
	return nil
}

// oneLine shortens what a program said to a cell of a table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// bandwidthNote is the last and so the largest of the sizes of a run.
func bandwidthNote(l []toolout.Bandwidth) string {
	b := l[len(l)-1]
	return fmt.Sprintf("%d sizes, %.0f MiB/s at %d B", len(l), b.Average, b.Bytes)
}

func latencyNote(l []toolout.Latency) string {
	return fmt.Sprintf("%d sizes, %.0f us at %d B", len(l), l[0].Typical, l[0].Bytes)
}
