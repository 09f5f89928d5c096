// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/manager/metrics"
)

// shown is where the manager shows what it counts, nil for nowhere.
type shown struct {
	listener net.Listener
	stop     context.CancelFunc // nil before run
	done     chan error
}

// openMetrics listens for who asks for metrics.
func openMetrics(f *flags) (*shown, error) {
	if f.metrics == "off" {
		return nil, nil
	}
	l, err := cli.Listen("metrics-listen", f.metrics)
	if err != nil {
		return nil, err
	}
	if f.tls.Enabled() {
		c, err := f.tls.HTTPS()
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l = tls.NewListener(l, c)
	}
	return &shown{listener: l, done: make(chan error, 1)}, nil
}

// run shows counters until close.
func (s *shown) run(counters func() map[string]uint64) {
	if s == nil {
		return
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() { s.done <- (&metrics.Collector{Counters: counters}).Serve(ctx, s.listener) }()
}

func (s *shown) close() error {
	if s == nil {
		return nil
	}
	if s.stop == nil {
		return s.listener.Close()
	}
	s.stop()
	return <-s.done
}
