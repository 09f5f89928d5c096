// SPDX-License-Identifier: Apache-2.0

package none_test

import (
	"testing"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/none"
)

type owner int

func (o *owner) Release() { *o++ }

func TestSend_RefusesAndReleasesEveryFrame(t *testing.T) {
	l := none.New()
	var released owner
	for dst := range uint32(3) {
		if v := l.Send(&fabric.Frame{Dst: dst, Owner: &released}); v != fabric.NoRoute {
			t.Fatalf("node %d: %v", dst, v)
		}
	}
	if v := l.Send(&fabric.Frame{}); v != fabric.NoRoute {
		t.Fatalf("a frame without owner: %v", v)
	}
	if released != 3 || l.Refused() != 4 {
		t.Fatalf("released %d of 3, refused %d of 4", released, l.Refused())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
