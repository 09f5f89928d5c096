// SPDX-License-Identifier: Apache-2.0

// Package metrics shows Prometheus what a manager counts. A counter of the manager, such as gid_conflict_total, is the
// metric ernic_manager_gid_conflict_total; what does not end in _total is a gauge.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	prefix = "ernic_manager_"
	// Who scrapes has something small to ask, and more than a few at once are no scrapers.
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// Collector gives counters to Prometheus.
type Collector struct {
	// Counters returns all of them by name.
	Counters func() map[string]uint64
}

// Describe implements prometheus.Collector. Which counters there are is known when they are asked for.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for name, value := range c.Counters() {
		kind := prometheus.GaugeValue
		if strings.HasSuffix(name, "_total") {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc(prefix+name, "Counter of the manager.", nil, nil)
		ch <- prometheus.MustNewConstMetric(desc, kind, float64(value))
	}
}

// Serve answers GET /metrics on l until ctx ends, and closes l.
func (c *Collector) Serve(ctx context.Context, l net.Listener) error {
	r := prometheus.NewRegistry()
	if err := errors.Join(r.Register(c), r.Register(collectors.NewGoCollector()),
		r.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))); err != nil {
		return errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout}))
	s := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		WriteTimeout: scrapeTimeout + 5*time.Second, MaxHeaderBytes: 16 << 10,
	}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	err := s.Serve(l)
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("metrics listener %s: %w", l.Addr(), err)
}
