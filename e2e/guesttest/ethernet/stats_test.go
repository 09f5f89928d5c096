// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"os"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
)

// counted is a stats file.
type counted struct{ toolout.Stats }

func (c counted) number(t *testing.T, section, name string) uint64 {
	t.Helper()
	v, err := c.Number(section, name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// readStats reads the stats file of a node.
func readStats(t *testing.T, n *site.Node) counted {
	t.Helper()
	b, err := os.ReadFile(n.Stats)
	if err != nil {
		t.Fatal(err)
	}
	return counted{toolout.ParseStats(string(b))}
}

// nextStats waits until the worker has written its stats file twice: what was
// counted before the call is in the second.
func nextStats(t *testing.T, n *site.Node, last counted) counted {
	t.Helper()
	fresh := 0
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		now := readStats(t, n)
		if now.Stats["Instance"]["time"] == last.Stats["Instance"]["time"] {
			continue
		}
		if fresh++; fresh == 2 {
			return now
		}
		last = now
	}
	t.Fatalf("%s: the stats file of %s is not written any more", n.Name, last.Stats["Instance"]["time"])
	return last
}

// resources are what a worker's process holds.
type resources struct{ goroutines, files, heap uint64 }

// settled returns what a worker holds when it is at rest: the least of a few
// looks, for a collection, a link or a scrape may be under way.
func settled(t *testing.T, n *site.Node) resources {
	t.Helper()
	last := readStats(t, n)
	least := resources{1 << 62, 1 << 62, 1 << 62}
	for range 3 {
		last = nextStats(t, n, last)
		least.goroutines = min(least.goroutines, last.number(t, "Process Statistics", "goroutines"))
		least.files = min(least.files, last.number(t, "Process Statistics", "open_files"))
		least.heap = min(least.heap, last.number(t, "Process Statistics", "heap_bytes"))
	}
	return least
}

// noMoreThan fails the test when a worker holds more than before. Garbage counts
// as heap until the next collection, so only much of it tells.
func (r resources) noMoreThan(t *testing.T, name string, before resources) {
	t.Helper()
	t.Logf("%s: %d goroutines, %d files, %d KiB of heap; before %d, %d, %d", name,
		r.goroutines, r.files, r.heap>>10, before.goroutines, before.files, before.heap>>10)
	if r.goroutines > before.goroutines+4 {
		t.Errorf("%s has %d goroutines, before %d", name, r.goroutines, before.goroutines)
	}
	if r.files > before.files+4 {
		t.Errorf("%s has %d files open, before %d", name, r.files, before.files)
	}
	if r.heap > 2*before.heap+32<<20 {
		t.Errorf("%s has %d MiB of heap, before %d", name, r.heap>>20, before.heap>>20)
	}
}
