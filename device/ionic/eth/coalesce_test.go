// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/intr"
)

// A driver that waits for an interrupt each time gets all of its completions, and
// no two interrupts closer to each other than it asked for.
func TestCoalescing_SparesInterruptsAndLosesNothing(t *testing.T) {
	r := upRig(t, 1, 0)
	p := r.Pairs[0]
	const units = 63
	r.bank.Write(uint64(p.Vec)*abi.IntrCtrlSize+abi.IntrCoalInit, units)
	begun, before := time.Now(), r.Fired(p.Vec)
	for i := range 50 {
		f := frame(station, peer, uint16(i), 60+i)
		r.inject(t, f)
		if got := p.Receive(); !bytes.Equal(got.Data, f) {
			t.Fatalf("frame %d: received %x", i, got.Data)
		}
		p.Fill()
		f = frame(peer, station, uint16(i), 60+i)
		p.Send(f)
		if got := r.wireFrame(t); !bytes.Equal(got, f) {
			t.Fatalf("frame %d: sent %x", i, got)
		}
		p.AwaitTx()
	}
	fired := r.Fired(p.Vec) - before
	took := time.Since(begun)
	if most := int64(took/(units*intr.CoalesceUnit)) + 2; fired < 1 || fired > most {
		t.Errorf("%d interrupts in %v, want 1 to %d", fired, took, most)
	}
}
