// SPDX-License-Identifier: Apache-2.0

// Command bench measures the data path of the fabric from one run, against
// plain Go TCP over loopback in the same run:
//
//   - RC WRITE bandwidth against a TCP stream of the same message sizes whose
//     receiver copies into a separate buffer;
//   - 64-byte SEND latency, from the post to the completion, against a TCP
//     ping-pong;
//   - messages a second, allocations per message and CPU of an idle worker.
//
// Two workers run as processes of their own; the guests are Go drivers inside
// this program. TCP's other end is a process of its own, too. Rounds of both
// alternate, so that what disturbs the machine disturbs both; medians are told.
// Several builds of the worker can take turns in one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

type options struct {
	bins   []string
	json   string
	rounds int
	round  time.Duration
	idle   time.Duration
	spin   bool
}

func main() {
	var o options
	peer := flag.String("tcp-peer", "", "internal: serve as the other end of TCP in `mode`")
	flag.Func("bin", "`directory` with ernic-worker, default bin; given again, those builds take turns with the first", func(dir string) error {
		o.bins = append(o.bins, dir)
		return nil
	})
	flag.StringVar(&o.json, "json", "", "also write the figures to `file`")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each measurement; the median counts")
	flag.DurationVar(&o.round, "time", time.Second, "`duration` of a round")
	flag.DurationVar(&o.idle, "idle", 5*time.Second, "`duration` of the idle measurement")
	flag.BoolVar(&o.spin, "spin", false, "guests poll without giving their CPU away, as on a machine with CPUs to spare")
	flag.Parse()
	if *peer != "" {
		if err := tcpPeer(*peer); err != nil {
			fail(err)
		}
		return
	}
	if o.bins == nil {
		o.bins = []string{"bin"}
	}
	if flag.NArg() != 0 || o.rounds < 1 || o.round <= 0 || o.idle <= 0 {
		fmt.Fprintln(os.Stderr, "bench: rounds and durations must be positive, and there are no arguments")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		stop()
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

func run(ctx context.Context, o options) error {
	r, err := runBuilds(ctx, o)
	if err != nil {
		return err
	}
	if r.Allocations, err = measureAllocations(ctx); err != nil {
		return err
	}
	r.print(os.Stdout)
	if o.json != "" {
		return r.write(o.json)
	}
	return nil
}

// runBuilds starts a manager, two workers and two guests of each build and
// measures all of them.
func runBuilds(ctx context.Context, o options) (r *report, err error) {
	var stacks []*stack
	defer func() {
		for _, s := range stacks {
			err = errors.Join(err, s.stop())
		}
	}()
	for _, bin := range o.bins {
		progress("starting a manager, two workers of %s and two guests", bin)
		s, err := start(ctx, bin)
		if err != nil {
			return nil, err
		}
		stacks = append(stacks, s)
	}
	return measure(ctx, stacks, o)
}

func measure(ctx context.Context, stacks []*stack, o options) (*report, error) {
	r := newReport(o)
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		progress("RC WRITE of %s against TCP", bytesText(size))
		found, err := measureBandwidth(ctx, stacks, o, size)
		if err != nil {
			return nil, err
		}
		for i, b := range found {
			r.Builds[i].Bandwidth = append(r.Builds[i].Bandwidth, b)
		}
	}
	progress("64-byte latency against TCP")
	latencies, err := measureLatency(ctx, stacks, o)
	if err != nil {
		return nil, err
	}
	progress("messages a second")
	messages, err := measureMessages(ctx, stacks, o)
	if err != nil {
		return nil, err
	}
	progress("CPU of idle workers")
	for i, s := range stacks {
		b := &r.Builds[i]
		b.Latency, b.Messages = latencies[i], messages[i]
		if b.Idle, err = s.measureIdle(ctx, o.idle); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
