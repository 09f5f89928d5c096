// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/driver/guest"
	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

// numbers are the fields of one section of a worker's counters.
func numbers(t *testing.T, w *worker.Worker, key string) map[string]uint64 {
	t.Helper()
	for _, s := range w.Stats(0) {
		if s.Key == key {
			return numbersOf(s.Fields)
		}
	}
	t.Fatalf("no section %s", key)
	return nil
}

func numbersOf(fields []section.Field) map[string]uint64 {
	m := map[string]uint64{}
	for _, f := range fields {
		if !f.IsText {
			m[f.Name] = f.Number
		}
	}
	return m
}

// The worker shows what the driver reads, queue pair by queue pair, and may be
// asked at any time: while messages fly, and over the end of a guest.
func TestStats_AreWhatTheDriverReads(t *testing.T) {
	p, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	must(t, p.Set("stats.interval_ms", "10"))
	n := &node{
		t: t, socket: filepath.Join(t.TempDir(), "s"), mac: [6]byte{2, 0xe2, 0, 0, 1, 1}, addr: netip.AddrFrom4([4]byte{10, 77, 1, 1}),
	}
	w, err := worker.New(worker.Config{
		Name: "stats", Socket: n.socket, MAC: n.mac, Profile: p, GIDs: []gid.GID{n.addr.As16()}, Fabric: worker.FabricLoopback,
		Observe: worker.Observe{StatsFile: filepath.Join(t.TempDir(), "f"), StatsQPs: 16},
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, "worker", w.Run)

	asked, stop := make(chan int), make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				asked <- i
				return
			default:
				w.Stats(16)
			}
		}
	}()
	g := n.boot(guest.Options{})
	a, b := newEnd(t, n, g, false, n.addr), newEnd(t, n, g, true, n.addr)
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	src, dst := a.mr(8192, anyAccess), b.mr(8192, anyAccess)
	const messages, size = 50, 5000
	for i := range messages {
		must(t, qa.PostSend(verbs.SendWR{
			ID: uint64(i), Op: verbs.OpWrite, Flags: verbs.Signaled, SGEs: []verbs.SGE{src.Buffer.SGE(0, size, src.Key)},
			RemoteAddr: dst.Buffer.VA, RKey: dst.Key,
		}))
		a.want(1)
	}
	close(stop)
	if n := <-asked; n < 2 {
		t.Errorf("the worker was asked %d times meanwhile", n)
	}

	// The last message may be counted a moment after its completion.
	deadline := time.Now().Add(patience)
	var shown map[string]uint64
	for {
		hw, err := g.RDMA.Counters()
		must(t, err)
		shown = numbers(t, w, "rdma")
		different := ""
		for name, v := range hw {
			if s, ok := shown[name]; !ok || s != v {
				different = fmt.Sprintf("the driver reads %s as %d, the worker shows %d (%v)", name, v, s, ok)
			}
		}
		if different == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(different)
		}
		time.Sleep(time.Millisecond)
	}
	// What a busy machine made go again is counted again.
	again := shown["tx_rdma_retx_bytes"]
	if shown["tx_rdma_ucast_bytes"] != messages*size+again {
		t.Errorf("%d messages of %d bytes are counted as %d bytes, %d of them sent again", messages, size, shown["tx_rdma_ucast_bytes"], again)
	}
	lif := numbers(t, w, "lif")
	for off, name := range abi.LIFStatNames {
		for name != "" && g.NIC.Stat(8*off) != lif[name] {
			if time.Now().After(deadline) {
				t.Fatalf("the driver reads %s as %d, the worker shows %d", name, g.NIC.Stat(8*off), lif[name])
			}
			time.Sleep(time.Millisecond)
		}
	}
	for _, s := range w.Stats(16) {
		if s.Key != "per_qp" {
			continue
		}
		if want := 2; len(s.Rows) != want {
			t.Errorf("%d queue pairs are shown, want %d", len(s.Rows), want)
		}
		sent := map[uint32]uint64{}
		for _, r := range s.Rows {
			sent[r.ID] = numbersOf(r.Fields)["tx_rdma_ucast_bytes"]
		}
		if sent[qa.QPN] != messages*size+again || sent[qb.QPN] != 0 {
			t.Error(fmt.Sprint("bytes sent by queue pair: ", sent))
		}
	}
}
