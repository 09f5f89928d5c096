// SPDX-License-Identifier: Apache-2.0

// Command meshbench measures how a mesh stands many workers: one manager, as a
// process with its state on disk, and a thousand simulated workers inside this
// program, each with a connection of its own. They say and hear what real workers
// do; what all are told they decode and keep once, because on a real site they
// have a host each.
//
//	meshbench                                    ernic-manager
//	  worker 1 ---- TCP, gRPC ------------------ |  core
//	  ...                                        |  bbolt
//	  worker N ---- TCP, gRPC ------------------ |
//
// All workers start at once; then single addresses are claimed and released,
// everything rests, workers are killed and started again, and so is the manager.
// After every step all workers must agree on every address.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	bin     string
	json    string
	workers int
	claims  int
	rounds  int
	kills   int
	rest    time.Duration
	// patience bounds every wait for the mesh to agree.
	patience time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "`directory` with ernic-manager")
	flag.StringVar(&o.json, "json", "", "also write the figures to `file`")
	flag.IntVar(&o.workers, "workers", 1000, "how many workers")
	flag.IntVar(&o.claims, "claims", 100000, "how many addresses they claim together")
	flag.IntVar(&o.rounds, "rounds", 50, "how many claims are followed round the mesh")
	flag.IntVar(&o.kills, "kills", 10, "how many workers are killed and started again, one after the other")
	flag.DurationVar(&o.rest, "rest", 15*time.Second, "`duration` of the measurement at rest")
	flag.DurationVar(&o.patience, "patience", 5*time.Minute, "`time` after which a mesh that does not agree is a failure")
	flag.Parse()
	err := o.check()
	if err == nil && flag.NArg() != 0 {
		err = fmt.Errorf("there are no arguments, but %q was given", flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "meshbench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r, err := measure(ctx, o)
	stop()
	if err == nil {
		r.print(os.Stdout)
		if o.json != "" {
			err = r.write(o.json)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "meshbench:", err)
		os.Exit(1)
	}
}

func (o *options) check() error {
	switch {
	case o.workers < 2 || o.workers > 50000:
		return fmt.Errorf("-workers %d: need 2 to 50000", o.workers)
	case o.claims < o.workers || o.claims > o.workers*maxClaims:
		return fmt.Errorf("-claims %d: every worker claims 1 to %d addresses", o.claims, maxClaims)
	case o.rounds < 1 || o.kills < 1 || o.rest <= 0 || o.patience <= 0:
		return fmt.Errorf("-rounds, -kills, -rest and -patience must be positive")
	}
	return nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "meshbench: "+format+"\n", args...)
}
