// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
)

// counted is a stats file: a value by section and name.
type counted map[string]map[string]string

// readStats reads the stats file of a node.
func readStats(t *testing.T, n *site.Node) counted {
	t.Helper()
	b, err := os.ReadFile(n.Stats)
	if err != nil {
		t.Fatal(err)
	}
	return counted(toolout.ParseStats(string(b)))
}

func (c counted) number(t *testing.T, section, name string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(c[section][name], 10, 64)
	if err != nil {
		t.Fatalf("stats file, section %s: %s is %q", section, name, c[section][name])
	}
	return v
}

// sum adds up counters of the LIF.
func (c counted) sum(t *testing.T, names ...string) (v uint64) {
	t.Helper()
	for _, name := range names {
		v += c.number(t, "LIF Statistics", name)
	}
	return v
}

// shown is what the guest's tools say, every value under a name of ours.
type shown map[string]uint64

// asks prints the output of every tool that shows counters, each after a line
// that names it.
const asks = `
set -e
echo '#link'; ip -s -j link show dev eth0
echo '#proc'; grep eth0: /proc/net/dev
echo '#ethtool'; ethtool -S eth0
echo '#rdma'; rdma -j statistic show link ionic_0/1
echo '#sysfs'
cd /sys/class/infiniband/ionic_0/ports/1/hw_counters
for f in *; do [ "$f" = lifespan ] || echo "$f: $(cat $f)"; done
`

// askGuest returns what each of the tools says.
func askGuest(t *testing.T, n *site.Node) map[string]shown {
	t.Helper()
	out := map[string]shown{}
	for part := range strings.SplitSeq(must(t, n.Guest, asks), "#") {
		tool, text, _ := strings.Cut(part, "\n")
		switch tool {
		case "link":
			out[tool] = ipLink(t, text)
		case "proc":
			out[tool] = procNetDev(t, text)
		case "rdma":
			out[tool] = rdmaStatistic(t, text)
		case "ethtool", "sysfs":
			out[tool] = colons(t, text)
		}
	}
	for _, tool := range []string{"link", "proc", "ethtool", "rdma", "sysfs"} {
		if len(out[tool]) == 0 {
			t.Fatalf("%s: %s says nothing", n.Name, tool)
		}
	}
	return out
}

func ipLink(t *testing.T, text string) shown {
	t.Helper()
	var links []struct {
		Stats struct {
			RX, TX map[string]uint64
		} `json:"stats64"`
	}
	if err := json.Unmarshal([]byte(text), &links); err != nil || len(links) != 1 {
		t.Fatalf("ip -s link: %v\n%s", err, text)
	}
	r := shown{}
	for k, v := range links[0].Stats.RX {
		r["rx "+k] = v
	}
	for k, v := range links[0].Stats.TX {
		r["tx "+k] = v
	}
	return r
}

// procNetDev names the columns of /proc/net/dev.
func procNetDev(t *testing.T, text string) shown {
	t.Helper()
	columns := []string{
		"rx bytes", "rx packets", "rx errs", "rx drop", "rx fifo", "rx frame", "rx compressed", "rx multicast",
		"tx bytes", "tx packets", "tx errs", "tx drop", "tx fifo", "tx colls", "tx carrier", "tx compressed",
	}
	f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(text), "eth0:"))
	if len(f) != len(columns) {
		t.Fatalf("/proc/net/dev: %q", text)
	}
	r := shown{}
	for i, name := range columns {
		v, err := strconv.ParseUint(f[i], 10, 64)
		if err != nil {
			t.Fatalf("/proc/net/dev: %v", err)
		}
		r[name] = v
	}
	return r
}

func rdmaStatistic(t *testing.T, text string) shown {
	t.Helper()
	var links []map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&links); err != nil || len(links) != 1 {
		t.Fatalf("rdma statistic: %v\n%s", err, text)
	}
	r := shown{}
	for name, v := range links[0] {
		n, ok := v.(json.Number)
		if !ok || name == "ifindex" || name == "port" {
			continue
		}
		u, err := strconv.ParseUint(n.String(), 10, 64)
		if err != nil {
			t.Fatalf("rdma statistic: %s: %v", name, err)
		}
		r[name] = u
	}
	return r
}

// colons reads lines of a name, a colon and a number.
func colons(t *testing.T, text string) shown {
	t.Helper()
	r := shown{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if value = strings.TrimSpace(value); value == "" {
			continue // the heading
		}
		v, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		r[name] = v
	}
	return r
}

// expectations computes what each tool has to say from what the worker counted:
// the sums are those of the driver's ionic_get_stats64.
func expectations(t *testing.T, c counted) map[string]shown {
	t.Helper()
	classes := func(dir, what string) uint64 {
		return c.sum(t, dir+"_ucast_"+what, dir+"_mcast_"+what, dir+"_bcast_"+what)
	}
	over := c.sum(t, "rx_queue_empty")
	missed := c.sum(t, "rx_dma_error", "rx_queue_disabled", "rx_desc_fetch_error", "rx_desc_data_error")
	aborted := c.sum(t, "tx_dma_error", "tx_queue_disabled", "tx_desc_fetch_error", "tx_desc_data_error")
	rxDrop, txDrop := classes("rx", "drop_packets"), classes("tx", "drop_packets")
	want := map[string]shown{
		"link": {
			"rx bytes": classes("rx", "bytes"), "rx packets": classes("rx", "packets"), "rx multicast": c.sum(t, "rx_mcast_packets"),
			"rx errors": over + missed, "rx over_errors": over,
			"tx bytes": classes("tx", "bytes"), "tx packets": classes("tx", "packets"), "tx errors": aborted,
		},
		"proc": {
			"rx bytes": classes("rx", "bytes"), "rx packets": classes("rx", "packets"), "rx errs": over + missed,
			"rx multicast": c.sum(t, "rx_mcast_packets"),
			"tx bytes":     classes("tx", "bytes"), "tx packets": classes("tx", "packets"), "tx errs": aborted,
		},
		"ethtool": {
			"hw_tx_dropped": txDrop, "hw_rx_dropped": rxDrop, "hw_rx_over_errors": over,
			"hw_rx_missed_errors": missed, "hw_tx_aborted_errors": aborted,
		},
		"rdma":  {},
		"sysfs": {},
	}
	for _, name := range abi.PortStatNames {
		want["ethtool"][name] = c.number(t, "Port Statistics", name)
	}
	for name := range c["RDMA Statistics"] {
		// Names of the device alone start with rdma_; the guest has no use for them.
		if !strings.HasPrefix(name, "rdma_") {
			v := c.number(t, "RDMA Statistics", name)
			want["rdma"][name], want["sysfs"][name] = v, v
		}
	}
	return want
}

// disagreements compares what the guest says with what it should say.
func disagreements(want, got map[string]shown) (d []string) {
	for tool, values := range want {
		for name, v := range values {
			if g, ok := got[tool][name]; !ok {
				d = append(d, fmt.Sprintf("%s does not show %s", tool, name))
			} else if g != v {
				d = append(d, fmt.Sprintf("%s shows %s as %d, the worker counted %d", tool, name, g, v))
			}
		}
	}
	slices.Sort(d)
	return d
}

// counters are the sections that a guest can see.
func (c counted) counters() counted {
	return counted{"LIF": c["LIF Statistics"], "Port": c["Port Statistics"], "RDMA": c["RDMA Statistics"]}
}

// settle is the stats interval of the workers, and as much again for a machine
// that is busy with guests.
const settle = 2 * time.Second

// statsPatience is how long a worker may take to write its stats file again, and
// to tell a guest what it has counted.
const statsPatience = time.Minute

// nextStats waits until the worker has written its stats file again.
func nextStats(t *testing.T, n *site.Node, after counted) counted {
	t.Helper()
	for end := time.Now().Add(statsPatience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if c := readStats(t, n); c["Instance"]["time"] != after["Instance"]["time"] {
			return c
		}
	}
	t.Fatalf("%s: the stats file of %s is not written any more", n.Name, after["Instance"]["time"])
	return nil
}

// agree compares what the guest says with what the worker has counted at a time
// at which nothing is counted: the guest is asked between two stats files, a
// whole interval away from both, and if they are the same it has to say exactly
// that. Now and then a guest's kernel sends something by itself, and on a machine
// without time for it a worker may tell its guest an interval later: then they
// are asked again.
func agree(t *testing.T, n *site.Node) counted {
	t.Helper()
	var differ []string
	for range 20 {
		before := readStats(t, n)
		time.Sleep(settle)
		got := askGuest(t, n)
		after := nextStats(t, n, readStats(t, n))
		quiet := true
		for name, section := range before.counters() {
			quiet = quiet && maps.Equal(section, after.counters()[name])
		}
		if !quiet {
			continue
		}
		if differ = disagreements(expectations(t, after), got); len(differ) == 0 {
			return after
		}
		t.Logf("%s: not yet: %s", n.Name, strings.Join(differ, "; "))
	}
	if len(differ) == 0 {
		t.Fatalf("%s: something is counted all the time", n.Name)
	}
	t.Fatalf("%s: %s", n.Name, strings.Join(differ, "; "))
	return nil
}

func TestStats_GuestAndWorkerAgreeAfterTraffic(t *testing.T) {
	before := make([]counted, len(two.Nodes))
	for i, n := range two.Nodes {
		before[i] = agree(t, n)
	}
	const pings = 20
	client, peer := two.Nodes[1], two.Nodes[0]
	must(t, client.Guest, fmt.Sprintf("ping -q -i 0.02 -c %d -s 1472 %s", pings, peer.IP))
	must(t, client.Guest, "ping -q -b -i 0.02 -c 5 -W 1 192.168.200.255 || true")
	must(t, client.Guest, "ping -q -i 0.02 -c 5 -W 1 -I eth0 224.0.0.1 || true")
	p := pair()
	port := p.Port()
	if _, err := p.Run(t.Context(), port, fmt.Sprintf("iperf3 -s -1 -p %d", port), fmt.Sprintf("iperf3 -c %s -p %d -t 2", peer.IP, port)); err != nil {
		t.Fatal(err)
	}
	pingpong(t, p, "ibv_rc_pingpong", "-s 65536 -n 50")
	pingpong(t, p, "ibv_ud_pingpong", "-s 1024 -n 50")

	after := make([]counted, len(two.Nodes))
	for i, n := range two.Nodes {
		after[i] = agree(t, n)
	}
	// That they agree is worth something only where something was counted.
	for i := range two.Nodes {
		for _, c := range []struct {
			section, name string
			least         uint64
		}{
			{"LIF Statistics", "tx_ucast_packets", pings}, {"LIF Statistics", "rx_ucast_packets", pings},
			{"LIF Statistics", "rx_ucast_bytes", pings * 1500}, {"Port Statistics", "frames_rx_1024b_1518b", pings},
			{"Port Statistics", "frames_tx_1024b_1518b", pings}, {"Port Statistics", "octets_tx_total", pings * 1500},
			{"LIF Statistics", "tx_rdma_ucast_bytes", 50 * 65536}, {"LIF Statistics", "rx_rdma_ucast_packets", 100},
			{"RDMA Statistics", "rx_rdma_ucast_bytes", 50 * 65536},
		} {
			moved := after[i].number(t, c.section, c.name) - before[i].number(t, c.section, c.name)
			if moved < c.least {
				t.Errorf("%s: %s moved by %d, want at least %d", two.Nodes[i].Name, c.name, moved, c.least)
			}
		}
	}
	for _, name := range []string{"tx_bcast_packets", "tx_mcast_packets"} {
		if moved := after[1].sum(t, name) - before[1].sum(t, name); moved < 5 {
			t.Errorf("%s moved by %d, want at least 5", name, moved)
		}
	}
}

// load runs a server and a client between the guests until the test ends or the
// returned function is called.
func load(t *testing.T, port int, server, client string) (end func()) {
	t.Helper()
	p := *pair()
	p.Patience = 10 * time.Minute
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx, port, server, client)
		done <- err
	}()
	end = sync.OnceFunc(func() {
		select {
		case err := <-done:
			t.Errorf("the load has ended by itself: %v", err)
		default:
			cancel(enough)
			<-done
		}
	})
	t.Cleanup(end)
	return end
}

// Under load the guest's view lies between what the worker had counted an
// interval before and what it has counted an interval after.
func TestStats_GuestIsNoMoreThanAnIntervalBehindUnderLoad(t *testing.T) {
	n := two.Nodes[0]
	start := readStats(t, n)
	port := pair().Port()
	end := load(t, port, fmt.Sprintf("iperf3 -s -1 -p %d", port),
		fmt.Sprintf("iperf3 -c %s -p %d -t 600 -u -b 20M", n.IP, port))
	moves := func(since counted) bool {
		return readStats(t, n).sum(t, "rx_ucast_packets") > since.sum(t, "rx_ucast_packets")+1000
	}
	for deadline := time.Now().Add(statsPatience); !moves(start); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no load arrives")
		}
	}
	for range 3 {
		low := expectations(t, readStats(t, n))
		time.Sleep(settle)
		got := askGuest(t, n)
		// A worker that had no time tells its guest later, and both later.
		for deadline := time.Now().Add(statsPatience); len(below(low, got)) > 0; got = askGuest(t, n) {
			t.Logf("not yet: %s", strings.Join(below(low, got), "; "))
			if time.Now().After(deadline) {
				t.Fatalf("%s is behind what its worker had counted %v before: %s", n.Name, statsPatience, strings.Join(below(low, got), "; "))
			}
		}
		high := expectations(t, nextStats(t, n, readStats(t, n)))
		if low["link"]["rx packets"] == high["link"]["rx packets"] {
			t.Error("the load has ended")
		}
		for _, s := range below(got, high) {
			t.Errorf("%s shows more than its worker has counted: %s", n.Name, s)
		}
	}
	end()
}

// below tells which values of b are less than those of a.
func below(a, b map[string]shown) (d []string) {
	for tool, values := range a {
		for name, v := range values {
			if w, ok := b[tool][name]; ok && w < v {
				d = append(d, fmt.Sprintf("%s, %s: %d after %d", tool, name, w, v))
			}
		}
	}
	slices.Sort(d)
	return d
}

func TestStats_QueuePairsAreShownWhileTheyLive(t *testing.T) {
	port := pair().Port()
	args := func(n *site.Node) string {
		return fmt.Sprintf("ib_write_bw -F -d ionic_0 -x %s -s 4096 -D 500 -p %d", gidIndex(t, n.Guest, n.IP), port)
	}
	end := load(t, port, args(two.Nodes[0]), args(two.Nodes[1])+" "+two.Nodes[0].IP)
	n := two.Nodes[1]
	var c counted
	busy := ""
	for deadline := time.Now().Add(2 * statsPatience); busy == "" && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		c = readStats(t, n)
		for name := range c["Per-QP Statistics"] {
			if id, ok := strings.CutSuffix(name, ".tx_rdma_ucast_bytes"); ok && c.number(t, "Per-QP Statistics", name) > 1<<20 {
				busy = id
			}
		}
	}
	if busy == "" {
		t.Fatalf("no queue pair with traffic is shown: %v", c["Per-QP Statistics"])
	}
	qp := c["Per-QP Statistics"]
	if qp[busy+".type"] != "RC" || qp[busy+".state"] != "RTS" || qp[busy+".peer_qp"] == "0" {
		t.Errorf("%s is %s in %s to queue pair %s", busy, qp[busy+".type"], qp[busy+".state"], qp[busy+".peer_qp"])
	}
	if alive, shown := c.number(t, "Per-QP Statistics", "alive"), c.number(t, "Per-QP Statistics", "shown"); alive < 2 || shown != alive {
		t.Errorf("%d queue pairs of %d are shown; the GSI queue pair and that of the program are alive", shown, alive)
	}
	end()
}

func TestStats_MetricsLieBetweenTwoFiles(t *testing.T) {
	pingpong(t, pair(), "ibv_rc_pingpong", "-n 10") // the two have a link from here on
	low := make([]counted, len(two.Nodes))
	for i, n := range two.Nodes {
		low[i] = readStats(t, n)
	}
	var metrics string
	ctx, cancel := context.WithTimeout(t.Context(), statsPatience)
	defer cancel()
	err := site.Poll(ctx, func() (err error) {
		if metrics, err = scrape(); err != nil {
			return err
		}
		for _, state := range []string{"ernic_guest_attached 1", "ernic_lif_link_up 1", `ernic_mesh_peers{state="up"} 1`} {
			if !strings.Contains(metrics, "\n"+state+"\n") {
				return fmt.Errorf("the metrics do not say %s", state)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(two.Nodes, func(n *site.Node) bool { return strings.Contains(metrics, `name="`+n.Name+`"`) })
	if i < 0 {
		t.Fatalf("the metrics are of no worker that is known:\n%.400s", metrics)
	}
	n := two.Nodes[i]
	high := nextStats(t, n, readStats(t, n))
	value := func(series string) (v float64) {
		_, rest, ok := strings.Cut(metrics, "\n"+series+" ")
		text, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			t.Errorf("%s is missing or %q", series, text)
		}
		return v
	}
	for _, block := range []struct {
		metric, section string
		names           []string
	}{
		{"ernic_lif_counter_total", "LIF Statistics", abi.LIFStatNames[:]},
		{"ernic_port_stats_total", "Port Statistics", abi.PortStatNames[:]},
		{"ernic_rdma_stats_total", "RDMA Statistics", slices.Sorted(maps.Keys(high["RDMA Statistics"]))},
	} {
		for _, name := range block.names {
			if name == "" {
				continue
			}
			v := value(fmt.Sprintf("%s{counter=%q}", block.metric, name))
			if l, h := low[i].number(t, block.section, name), high.number(t, block.section, name); v < float64(l) || v > float64(h) {
				t.Errorf("%s is %.0f in the metrics, %d in the file before and %d in the file after", name, v, l, h)
			}
		}
	}
}

// scrape returns the metrics of one of the workers. The first worker of a host has
// the port; the other one has said that it found it taken, and runs.
func scrape() (string, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: two.Lab.Network.Dial}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://127.0.0.1:9840/metrics")
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", r.StatusCode, b)
	}
	return string(b), err
}

func TestStats_ErnictlSaysWhatTheFileSays(t *testing.T) {
	for _, n := range two.Nodes {
		id := nodeID(t, n)
		text, err := two.Ernictl(t.Context(), "stats", strconv.Itoa(id))
		if err != nil {
			t.Fatal(err)
		}
		got, file := counted(toolout.ParseStats(text)), readStats(t, n)
		if got["Instance"]["name"] != n.Name || got["Instance"]["instance"] != file["Instance"]["instance"] {
			t.Errorf("ernictl stats %d is of %v", id, got["Instance"])
		}
		for title, fields := range file {
			if title == "Per-QP Statistics" {
				continue // ernictl was not asked for any
			}
			for name := range fields {
				if _, ok := got[title][name]; !ok {
					t.Errorf("ernictl stats %d does not show %s, %s", id, title, name)
				}
			}
		}
		var v map[string]map[string]any
		if err := two.ErnictlJSON(t.Context(), &v, "stats", strconv.Itoa(id)); err != nil {
			t.Fatal(err)
		}
		if len(v["lif"]) < 70 || len(v["port"]) != 89 {
			t.Errorf("ernictl stats %d as JSON has %d LIF counters and %d of the port", id, len(v["lif"]), len(v["port"]))
		}
	}
}
