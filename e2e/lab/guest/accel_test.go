// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/e2e/lab/image"
)

func TestFindingHoldsForItsMachineOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "accel.json")
	if _, ok := loadFinding(path, "m1"); ok {
		t.Error("a finding out of nothing")
	}
	if err := (finding{Machine: "m1", Accel: KVM, Reason: "r"}).save(path); err != nil {
		t.Fatal(err)
	}
	if f, ok := loadFinding(path, "m1"); !ok || f.Accel != KVM || f.Reason != "r" {
		t.Errorf("got %+v, %v", f, ok)
	}
	if _, ok := loadFinding(path, "m2"); ok {
		t.Error("another machine's finding is taken")
	}
	if err := os.WriteFile(path, []byte(`{"machine":"m1","accel":"magic"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if f, ok := loadFinding(path, "m1"); ok {
		t.Errorf("nonsense is taken: %+v", f)
	}
}

func TestTheChoiceCanBeForced(t *testing.T) {
	for _, want := range []Accel{KVM, TCG} {
		t.Setenv(AccelVariable, string(want))
		if got, err := SelectAccel(t.Context(), nil, nil); err != nil || got != want {
			t.Errorf("got %q, %v", got, err)
		}
	}
	t.Setenv(AccelVariable, "xen")
	if _, err := SelectAccel(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "xen") {
		t.Errorf("got %v", err)
	}
}

func TestFallbackIsSaidAloud(t *testing.T) {
	var out bytes.Buffer
	finding{Accel: TCG, Reason: "no /dev/kvm here"}.say(image.NewProgress(&out))
	for _, want := range []string{"TCG", "KVM does not work", "no /dev/kvm here"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
}

func TestPhrasesAreSeenAcrossWrites(t *testing.T) {
	w := &watched{wanted: "works", refused: kvmFailure, found: make(chan struct{}), failed: make(chan struct{})}
	for _, s := range []string{"the machine wo", "rks\n", "works again\nlast"} {
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-w.found:
	default:
		t.Error("the phrase was missed")
	}
	select {
	case <-w.failed:
		t.Error("the other phrase was seen")
	default:
	}
	if got := w.lastLine(); got != "last" {
		t.Errorf("last line %q", got)
	}
}
