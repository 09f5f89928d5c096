// SPDX-License-Identifier: Apache-2.0

// Package toolout reads what RDMA and network tools print: perftest, the
// ibv_*_pingpong programs, iperf3 and ping.
package toolout

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Bandwidth is the result line of a perftest *_bw program.
type Bandwidth struct {
	Bytes      int // message size
	Iterations int
	Peak       float64 // MiB/s
	Average    float64 // MiB/s
	Rate       float64 // million messages/s
}

// Latency is the result line of a perftest *_lat program, in microseconds.
type Latency struct {
	Bytes                           int
	Iterations                      int
	Min, Max, Typical, Average, P99 float64
}

// ParseBandwidth reads the output of ib_send_bw, ib_write_bw, ib_read_bw or
// ib_atomic_bw run with one message size.
func ParseBandwidth(out string) (Bandwidth, error) {
	f, err := resultLine(out, "BW average", 5)
	if err != nil {
		return Bandwidth{}, err
	}
	return Bandwidth{int(f[0]), int(f[1]), f[2], f[3], f[4]}, nil
}

// ParseLatency reads the output of ib_send_lat, ib_write_lat, ib_read_lat or
// ib_atomic_lat run with one message size.
func ParseLatency(out string) (Latency, error) {
	f, err := resultLine(out, "t_typical", 6)
	if err != nil {
		return Latency{}, err
	}
	l := Latency{Bytes: int(f[0]), Iterations: int(f[1]), Min: f[2], Max: f[3], Typical: f[4], Average: f[5]}
	if len(f) > 7 {
		l.P99 = f[7]
	}
	return l, nil
}

// resultLine finds the numbers of the line below the heading that contains
// title.
func resultLine(out, title string, atLeast int) ([]float64, error) {
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if !strings.Contains(line, title) || i+1 == len(lines) {
			continue
		}
		var f []float64
		for _, w := range strings.Fields(lines[i+1]) {
			n, err := strconv.ParseFloat(w, 64)
			if err != nil {
				break
			}
			f = append(f, n)
		}
		if len(f) >= atLeast {
			return f, nil
		}
		return nil, fmt.Errorf("perftest: the result line has %d numbers, want %d: %q", len(f), atLeast, lines[i+1])
	}
	return nil, fmt.Errorf("perftest: no result under %q in:\n%s", title, out)
}

// Pingpong is the summary of an ibv_*_pingpong program.
type Pingpong struct {
	Bytes      int64
	Iterations int
	PerIter    float64 // microseconds
}

var (
	pingpongBytes = regexp.MustCompile(`(?m)^(\d+) bytes in [\d.]+ seconds`)
	pingpongIters = regexp.MustCompile(`(?m)^(\d+) iters in [\d.]+ seconds = ([\d.]+) usec/iter`)
)

// ParsePingpong reads the output of ibv_rc_pingpong, ibv_uc_pingpong or
// ibv_ud_pingpong. A payload that was not what the peer sent ("invalid data")
// is an error: the program itself only prints it.
func ParsePingpong(out string) (Pingpong, error) {
	if i := strings.Index(out, "invalid data"); i >= 0 {
		return Pingpong{}, fmt.Errorf("pingpong: payload differs: %s", strings.TrimSpace(out[i:min(len(out), i+80)]))
	}
	b, it := pingpongBytes.FindStringSubmatch(out), pingpongIters.FindStringSubmatch(out)
	if b == nil || it == nil {
		return Pingpong{}, fmt.Errorf("pingpong: no summary in:\n%s", out)
	}
	var p Pingpong
	p.Bytes, _ = strconv.ParseInt(b[1], 10, 64)
	p.Iterations, _ = strconv.Atoi(it[1])
	p.PerIter, _ = strconv.ParseFloat(it[2], 64)
	return p, nil
}

// ParseIperf reads iperf3 -J and returns what the receiver got, in bits/s.
func ParseIperf(out string) (float64, error) {
	var r struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
			Sum struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return 0, fmt.Errorf("iperf3: %w in:\n%s", err, out)
	}
	if r.Error != "" {
		return 0, fmt.Errorf("iperf3: %s", r.Error)
	}
	return max(r.End.Received.Rate, r.End.Sum.Rate), nil
}

var pingLoss = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)

// ParsePing reads the summary of ping: packets sent and answered.
func ParsePing(out string) (sent, received int, err error) {
	m := pingLoss.FindStringSubmatch(out)
	if m == nil {
		return 0, 0, fmt.Errorf("ping: no summary in:\n%s", out)
	}
	sent, _ = strconv.Atoi(m[1])
	received, _ = strconv.Atoi(m[2])
	return sent, received, nil
}
