// SPDX-License-Identifier: Apache-2.0

package memport

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ernic-dev/ernic/device/netport"
)

func TestPair_FramesArriveInOrderAtTheOtherEnd(t *testing.T) {
	a, b := Pair("t", 2)
	for i := range 5 {
		if err := a.Send(1, bytes.Repeat([]byte{byte(i)}, 60+i)); err != nil {
			t.Fatal(err)
		}
	}
	batch := netport.NewBatch(3, 128)
	next := 0
	for next < 5 {
		n, err := b.Receive(1, batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if want := bytes.Repeat([]byte{byte(next)}, 60+next); !bytes.Equal(batch.Frame(i), want) {
				t.Fatalf("frame %d is %x", next, batch.Frame(i))
			}
			next++
		}
	}
}

func TestSend_RefusesWhenTheWireIsFull(t *testing.T) {
	a, _ := Pair("t", 1)
	for range Depth {
		if err := a.Send(0, make([]byte, 60)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Send(0, make([]byte, 60)); !errors.Is(err, netport.ErrFull) {
		t.Fatalf("send on a full wire: %v", err)
	}
}

func TestClose_EndsABlockedReceive(t *testing.T) {
	a, b := Pair("t", 1)
	got := make(chan error)
	go func() {
		_, err := b.Receive(0, netport.NewBatch(1, 64))
		got <- err
	}()
	a.Close()
	if err := <-got; !errors.Is(err, netport.ErrClosed) {
		t.Fatalf("receive after close: %v", err)
	}
	if err := a.Send(0, nil); !errors.Is(err, netport.ErrClosed) {
		t.Fatalf("send after close: %v", err)
	}
}
