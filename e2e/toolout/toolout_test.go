// SPDX-License-Identifier: Apache-2.0

package toolout

import (
	"strings"
	"testing"
)

const bwOutput = `
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 65536      500              5038.79            1473.15		     0.023570
---------------------------------------------------------------------------------------
`

const latOutput = `
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 64      500          60.66          15328.58      2712.52  	       2819.82     	2371.12		11043.54 		15328.58
---------------------------------------------------------------------------------------
`

const pingpongOutput = `
8192000 bytes in 0.61 seconds = 106.95 Mbit/sec
1000 iters in 0.61 seconds = 612.76 usec/iter
`

func TestParseBandwidth_ReadsTheResultLine(t *testing.T) {
	b, err := ParseBandwidth(bwOutput)
	if want := (Bandwidth{65536, 500, 5038.79, 1473.15, 0.023570}); err != nil || b != want {
		t.Fatalf("got %+v, %v, want %+v", b, err, want)
	}
}

func TestParseLatency_ReadsTheResultLine(t *testing.T) {
	l, err := ParseLatency(latOutput)
	want := Latency{Bytes: 64, Iterations: 500, Min: 60.66, Max: 15328.58, Typical: 2712.52, Average: 2819.82, P99: 11043.54}
	if err != nil || l != want {
		t.Fatalf("got %+v, %v, want %+v", l, err, want)
	}
}

func TestParse_OutputWithoutAResultIsAnError(t *testing.T) {
	for _, out := range []string{"", "Couldn't create QP", bwOutput[:strings.Index(bwOutput, " 65536")], " t_typical[usec]\n 64 500\n"} {
		if b, err := ParseBandwidth(out); err == nil {
			t.Errorf("bandwidth of %q: %+v", out, b)
		}
		if l, err := ParseLatency(out); err == nil {
			t.Errorf("latency of %q: %+v", out, l)
		}
	}
}

func TestParsePingpong_ReadsTheSummaryAndRefusesBadPayload(t *testing.T) {
	p, err := ParsePingpong(pingpongOutput)
	if want := (Pingpong{8192000, 1000, 612.76}); err != nil || p != want {
		t.Fatalf("got %+v, %v, want %+v", p, err, want)
	}
	if _, err := ParsePingpong("invalid data in page 0\n" + pingpongOutput); err == nil {
		t.Fatal("a wrong payload passed")
	}
	if _, err := ParsePingpong("  local address: ..."); err == nil {
		t.Fatal("no summary passed")
	}
}

func TestParseIperf_TakesTheReceiver(t *testing.T) {
	r, err := ParseIperf(`{"end":{"sum_sent":{"bits_per_second":3e8},"sum_received":{"bits_per_second":2.5e8}}}`)
	if err != nil || r != 2.5e8 {
		t.Fatalf("got %v, %v", r, err)
	}
	if _, err := ParseIperf(`{"error":"unable to connect"}`); err == nil || !strings.Contains(err.Error(), "unable") {
		t.Fatalf("error is lost: %v", err)
	}
}

func TestParsePing_CountsAnswers(t *testing.T) {
	s, r, err := ParsePing("3 packets transmitted, 2 received, 33% packet loss, time 2005ms")
	if err != nil || s != 3 || r != 2 {
		t.Fatalf("got %d, %d, %v", s, r, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(bwOutput)
	f.Add(latOutput)
	f.Add(pingpongOutput)
	f.Fuzz(func(_ *testing.T, out string) {
		_, _ = ParseBandwidth(out)
		_, _ = ParseLatency(out)
		_, _ = ParsePingpong(out)
		_, _ = ParseIperf(out)
		_, _, _ = ParsePing(out)
	})
}
