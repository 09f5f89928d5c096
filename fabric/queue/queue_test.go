// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ernic-dev/ernic/fabric"
)

func limits(t testing.TB, l Limits) Limits {
	t.Helper()
	l, err := l.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// flowsOfDifferentGroups returns n flows, no two in one group.
func flowsOfDifferentGroups(n int) []uint32 {
	var seen set
	var flows []uint32
	for f := uint32(1); len(flows) < n; f++ {
		if g := fabric.Group(f); !seen.has(g) {
			seen.add(g)
			flows = append(flows, f)
		}
	}
	return flows
}

func TestSetAfter_VisitsMembersInTurn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var s set
		members := map[uint8]bool{}
		for range 1 + r.IntN(6) {
			g := uint8(r.IntN(256))
			s.add(g)
			members[g] = true
		}
		from := uint8(r.IntN(256))
		want := from
		for i := 1; i <= 256; i++ {
			if g := from + uint8(i); members[g] {
				want = g
				break
			}
		}
		if got := s.after(from); got != want {
			t.Fatalf("after(%d) of %v is %d, want %d", from, members, got, want)
		}
	}
}

func TestPop_KeepsOrderWithinAFlowAndLosesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	q := New(limits(t, Limits{}))
	next, due := map[uint32]uint32{}, map[uint32]uint32{}
	pushed, popped, refused := 0, 0, 0
	payload := make([]byte, fabric.MaxChunk)
	pop := func() {
		var f fabric.Frame
		if !q.Pop(&f, fabric.MaxChunk) {
			return
		}
		if f.Src != due[f.Flow] {
			t.Fatalf("flow %d: frame %d where %d was due", f.Flow, f.Src, due[f.Flow])
		}
		due[f.Flow]++
		popped++
	}
	for range 20000 {
		if r.IntN(2) == 0 {
			pop()
			continue
		}
		flow := uint32(r.IntN(300))
		f := fabric.Frame{
			Flow: flow, Class: fabric.Class(r.IntN(fabric.Classes)), Src: next[flow],
			Payload: payload[:r.IntN(fabric.MaxChunk)],
		}
		if q.Push(&f) == Queued {
			next[flow]++
			pushed++
		} else {
			refused++
		}
	}
	for q.Len() > 0 {
		pop()
	}
	if pushed != popped || q.Bytes() != 0 || q.reliable != 0 || q.lossy != 0 || !q.light.empty() || !q.heavy.empty() {
		t.Fatalf("pushed %d, popped %d, left %d bytes, %d reliable, %d lossy", pushed, popped, q.Bytes(), q.reliable, q.lossy)
	}
	if refused == 0 {
		t.Fatal("the test never filled the queue")
	}
}

func TestP3_PopDelaysAQuietFlowByOneChunk(t *testing.T) {
	q := New(limits(t, Limits{Reliable: 64 << 20}))
	flows := flowsOfDifferentGroups(4)
	chunk := make([]byte, fabric.MaxChunk)
	for range 3 {
		for _, flow := range flows[:3] {
			if q.Push(&fabric.Frame{Flow: flow, Payload: chunk}) != Queued {
				t.Fatal("no room for bulk")
			}
		}
	}
	var f fabric.Frame
	q.Pop(&f, fabric.MaxChunk) // somebody is being served
	if q.Push(&fabric.Frame{Flow: flows[3], Payload: chunk[:64]}) != Queued {
		t.Fatal("no room for the quiet flow")
	}
	for i := 1; ; i++ {
		q.Pop(&f, fabric.MaxChunk)
		if f.Flow == flows[3] {
			if i > 2 {
				t.Fatalf("the quiet flow waited for %d chunks", i-1)
			}
			return
		}
	}
}

// Acknowledgements of many flows go first, but bulk goes on.
func TestPop_LightFlowsDoNotStopBulk(t *testing.T) {
	q := New(limits(t, Limits{}))
	flows := flowsOfDifferentGroups(100)
	chunk := make([]byte, fabric.MaxChunk)
	push := func(flow uint32, n int) {
		if q.Push(&fabric.Frame{Flow: flow, Header: chunk[:96], Payload: chunk[:n]}) != Queued {
			t.Fatalf("no room for flow %d", flow)
		}
	}
	for range 3 {
		push(flows[0], fabric.MaxChunk)
	}
	for _, flow := range flows[1:] {
		push(flow, 64)
	}
	light, since := 0, 0
	var f fabric.Frame
	for range 5000 {
		if !q.Pop(&f, fabric.MaxChunk) {
			t.Fatal("nothing to take")
		}
		if f.Flow == flows[0] {
			if light == 0 {
				t.Fatal("bulk went before light flows")
			}
			since = 0
			push(flows[0], fabric.MaxChunk)
			continue
		}
		light++
		if since += cost(&f); since > lightShare+lightBytes {
			t.Fatalf("%d bytes of light flows since the last bulk frame", since)
		}
		push(f.Flow, 64)
	}
}

func TestPop_SharesBytesNotFrames(t *testing.T) {
	q := New(limits(t, Limits{}))
	flows := flowsOfDifferentGroups(2)
	chunk := make([]byte, fabric.MaxChunk)
	for range 3 {
		q.Push(&fabric.Frame{Flow: flows[0], Payload: chunk})
	}
	for q.Push(&fabric.Frame{Flow: flows[1], Payload: chunk[:4096]}) == Queued {
	}
	bytes := map[uint32]int{}
	var f fabric.Frame
	for bytes[flows[0]] < 2*fabric.MaxChunk && q.Pop(&f, fabric.MaxChunk) {
		bytes[f.Flow] += len(f.Payload)
	}
	if small := bytes[flows[1]]; small < fabric.MaxChunk/2 {
		t.Fatalf("the flow of 4 KiB frames got %d bytes while the flow of chunks got %d", small, bytes[flows[0]])
	}
}

func TestPop_LeavesAFrameLargerThanTheLimit(t *testing.T) {
	q := New(limits(t, Limits{}))
	q.Push(&fabric.Frame{Payload: make([]byte, 1000)})
	var f fabric.Frame
	if q.Pop(&f, 999) {
		t.Fatal("took 1000 bytes where 999 was the limit")
	}
	if !q.Pop(&f, 1000) || len(f.Payload) != 1000 {
		t.Fatal("did not take what fits")
	}
}

func TestP4_PushStarvesAReliableGroupAloneAndTellsOfRoomOnce(t *testing.T) {
	q := New(limits(t, Limits{Group: 1 << 20}))
	f := fabric.Frame{Flow: 7, Class: fabric.Reliable, Payload: make([]byte, 64<<10)}
	n := 0
	for q.Push(&f) == Queued {
		n++
	}
	if n < 10 || !q.Starving() {
		t.Fatalf("took %d frames, starving %v", n, q.Starving())
	}
	var room [fabric.Groups]uint8
	var out fabric.Frame
	told := 0
	for i := range n {
		q.Pop(&out, fabric.MaxChunk)
		if k := q.TakeRoom(&room); k > 0 {
			told++
			if k != 1 || room[0] != fabric.Group(7) {
				t.Fatalf("room for %v", room[:k])
			}
			if left := n - i - 1; left > n/2 || left < n/2-2 {
				t.Fatalf("told of room with %d of %d frames left", left, n)
			}
		}
	}
	if told != 1 || q.Starving() {
		t.Fatalf("told %d times, starving %v", told, q.Starving())
	}
}

func TestPush_LossyAndReliableDoNotStarveEachOther(t *testing.T) {
	q := New(limits(t, Limits{}))
	flows := flowsOfDifferentGroups(40)
	payload := make([]byte, 16<<10)
	for _, flow := range flows[:20] {
		for q.Push(&fabric.Frame{Flow: flow, Class: fabric.Reliable, Payload: payload}) == Queued {
		}
	}
	if got := q.Push(&fabric.Frame{Flow: flows[30], Class: fabric.Ethernet, Payload: payload}); got != Queued {
		t.Fatalf("Ethernet found %v behind reliable frames", got)
	}
	q = New(limits(t, Limits{}))
	for _, flow := range flows[:20] {
		for q.Push(&fabric.Frame{Flow: flow, Class: fabric.Datagram, Payload: payload}) == Queued {
		}
	}
	if got := q.Push(&fabric.Frame{Flow: flows[0], Class: fabric.Datagram, Payload: payload}); got != NoRoom {
		t.Fatalf("a full lossy share answered %v", got)
	}
	if got := q.Push(&fabric.Frame{Flow: flows[30], Class: fabric.Reliable, Payload: payload}); got != Queued {
		t.Fatalf("a reliable frame found %v behind datagrams", got)
	}
}

func TestPush_AdmitsAQuietGroupPastTheSoftLimit(t *testing.T) {
	q := New(limits(t, Limits{}))
	flows := flowsOfDifferentGroups(30)
	chunk := make([]byte, fabric.MaxChunk)
	// Ten bulk flows take the whole share.
	for _, flow := range flows[:10] {
		for q.Push(&fabric.Frame{Flow: flow, Payload: chunk}) == Queued {
		}
	}
	if got := q.Push(&fabric.Frame{Flow: flows[20], Payload: chunk[:64]}); got != Queued {
		t.Fatalf("a quiet flow found %v", got)
	}
	if hard := 2 * q.limits.Reliable; q.reliable > hard {
		t.Fatalf("%d bytes queued, the hard limit is %d", q.reliable, hard)
	}
}

func TestPush_BoundsMemoryForSmallFramesToo(t *testing.T) {
	q := New(limits(t, Limits{}))
	for flow := range uint32(100000) {
		for range 20 {
			q.Push(&fabric.Frame{Flow: flow, Class: fabric.Class(flow % fabric.Classes)})
		}
	}
	if most := (2*q.limits.Reliable + q.limits.Lossy) / Surcharge; q.Len() > most {
		t.Fatalf("%d empty frames queued, at most %d fit the limits", q.Len(), most)
	}
}

func TestMoveTo_KeepsOrderAndStarvation(t *testing.T) {
	l := limits(t, Limits{})
	old := []*Queue{New(l), New(l)}
	for i := range uint32(400) {
		f := fabric.Frame{Flow: i % 40, Src: i}
		old[fabric.Group(f.Flow)%2].Push(&f)
	}
	chunk := make([]byte, fabric.MaxChunk)
	for old[fabric.Group(5)%2].Push(&fabric.Frame{Flow: 5, Src: 1 << 20, Payload: chunk}) == Queued {
	}
	fresh := []*Queue{New(l), New(l), New(l)}
	for _, q := range old {
		q.MoveTo(func(g uint8) *Queue { return fresh[g%3] })
		if q.Len() != 0 || q.Starving() {
			t.Fatal("something stayed behind")
		}
	}
	if !fresh[fabric.Group(5)%3].Starving() {
		t.Fatal("the starved group was forgotten")
	}
	last, n := map[uint32]uint32{}, 0
	for i, q := range fresh {
		var f fabric.Frame
		for q.Pop(&f, fabric.MaxChunk) {
			if int(fabric.Group(f.Flow))%3 != i {
				t.Fatalf("flow %d is in queue %d", f.Flow, i)
			}
			if f.Src < last[f.Flow] {
				t.Fatalf("flow %d: frame %d after %d", f.Flow, f.Src, last[f.Flow])
			}
			last[f.Flow] = f.Src
			n++
		}
	}
	if n < 400 {
		t.Fatalf("%d frames left of more than 400", n)
	}
}

func TestLimits_BelowOneFrameAreRefused(t *testing.T) {
	for _, l := range []Limits{{Group: 1000}, {Reliable: 1000}, {Lossy: 1000}, {Quantum: -1}} {
		if _, err := l.WithDefaults(); err == nil {
			t.Errorf("%+v was taken", l)
		}
	}
}

func TestPushPop_DoNotAllocate(t *testing.T) {
	q := New(limits(t, Limits{}))
	f := fabric.Frame{Flow: 1, Payload: make([]byte, 100)}
	var out fabric.Frame
	run := func() {
		for i := range uint32(64) {
			f.Flow = i
			q.Push(&f)
		}
		for q.Pop(&out, fabric.MaxChunk) {
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n > 0 {
		t.Fatalf("%v allocations for 64 frames", n)
	}
}

func BenchmarkPushPop(b *testing.B) {
	for _, flows := range []uint32{1, 100} {
		b.Run(fmt.Sprint(flows), func(b *testing.B) {
			q := New(limits(b, Limits{}))
			var out fabric.Frame
			f := fabric.Frame{Payload: make([]byte, 4096)}
			for i := range b.N {
				f.Flow = uint32(i) % flows
				q.Push(&f)
				q.Pop(&out, fabric.MaxChunk)
			}
		})
	}
}
