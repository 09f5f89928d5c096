// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/worker/stats"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

// Observe says where the worker shows what it counts. The zero value shows
// nothing, and costs nothing.
type Observe struct {
	StatsFile   string         // kept current; "": none
	StatsFormat section.Format // default text
	StatsQPs    int            // queue pairs to show one by one, at most stats.MaxQPs

	Metrics string // host:port that Prometheus asks; "": none
	// MetricsIfFree makes it no failure that the address is in use: the worker is
	// not the first on its host and nobody chose the address. It takes the address
	// when the other has left.
	MetricsIfFree bool
	MetricsTLS    *tls.Config // nil: in the clear
}

// metricsRetry is how often a worker looks whether the address of its metrics is
// free.
const metricsRetry = 10 * time.Second

func (o *Observe) check() error {
	if o.StatsQPs < 0 || o.StatsQPs > stats.MaxQPs {
		return fmt.Errorf("statistics of %d queue pairs: 0 to %d can be shown", o.StatsQPs, stats.MaxQPs)
	}
	if o.StatsFormat != "" {
		if _, err := section.ParseFormat(string(o.StatsFormat)); err != nil {
			return fmt.Errorf("format of the stats file: %w", err)
		}
	}
	return nil
}

// observers are those who are shown what the worker counts.
type observers struct {
	source  stats.Source
	file    *stats.File  // nil: none
	metrics net.Listener // nil: none, or not yet
	qps     int
	retry   time.Duration // 0: the address is had or not wanted
}

// openObservers opens what was asked for: a file that cannot be written and an
// address that cannot be listened on are found before there is a guest.
func (w *Worker) openObservers() error {
	c := &w.config
	if err := c.Observe.check(); err != nil {
		return err
	}
	o := &w.observers
	o.qps = c.Observe.StatsQPs
	o.source = stats.Source{
		Identity: w.identity, Attached: w.attached.Load, NIC: w.nic, Engine: w.engine, Server: w.server,
		Carrier: w.carried, Self: w.self.Load, Peers: w.carrier.peers,
	}
	if path := c.Observe.StatsFile; path != "" {
		format := c.Observe.StatsFormat
		if format == "" {
			format = section.Text
		}
		f := &stats.File{Path: path, Format: format, Interval: c.statsInterval(), QPs: o.qps, Source: &o.source, Log: c.Log}
		if err := f.Write(); err != nil {
			return err
		}
		o.file = f
	}
	if c.Observe.Metrics == "" {
		return nil
	}
	l, err := net.Listen("tcp", c.Observe.Metrics)
	switch {
	case err == nil:
		o.metrics = l
		w.saysMetrics(l)
	case c.Observe.MetricsIfFree && errors.Is(err, syscall.EADDRINUSE):
		o.retry = metricsRetry
		c.Log.Warn().Str("address", c.Observe.Metrics).
			Msg("another program, most likely another worker, has the default address for metrics: this worker shows none until it is free; --metrics-listen gives it one of its own, or off")
	default:
		return fmt.Errorf("metrics listener %s: %w", c.Observe.Metrics, err)
	}
	return nil
}

func (w *Worker) saysMetrics(l net.Listener) {
	w.config.Log.Info().Str("address", l.Addr().String()).Bool("tls", w.config.Observe.MetricsTLS != nil).Msg("metrics are at /metrics")
}

// observing returns what runs as long as the worker.
func (w *Worker) observing() (list []func(context.Context) error) {
	o := &w.observers
	if o.file != nil {
		list = append(list, o.file.Run)
	}
	switch {
	case o.metrics != nil:
		list = append(list, func(ctx context.Context) error { return w.serveMetrics(ctx, o.metrics) })
	case o.retry != 0:
		list = append(list, w.waitForMetrics)
	}
	return list
}

func (w *Worker) serveMetrics(ctx context.Context, l net.Listener) error {
	if c := w.config.Observe.MetricsTLS; c != nil {
		l = tls.NewListener(l, c)
	}
	return (&stats.Collector{Source: &w.observers.source, QPs: w.observers.qps}).Serve(ctx, l)
}

// waitForMetrics takes the address of the metrics when it is free, and serves
// them.
func (w *Worker) waitForMetrics(ctx context.Context) error {
	ticker := time.NewTicker(w.observers.retry)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if l, err := net.Listen("tcp", w.config.Observe.Metrics); err == nil {
			w.saysMetrics(l)
			return w.serveMetrics(ctx, l)
		}
	}
}

func (o *observers) close() {
	if o.metrics != nil {
		_ = o.metrics.Close() // the end of Serve has closed it, if it ran
	}
}

// Stats returns all counters of the worker now, and those of up to qps queue
// pairs one by one.
func (w *Worker) Stats(qps int) []section.Section { return w.observers.source.Take(qps).Sections() }

func (c *Config) statsInterval() time.Duration {
	return time.Duration(c.Profile.Profile.StatsIntervalMS) * time.Millisecond
}

func (w *Worker) identity() stats.Identity {
	c := &w.config
	i := stats.Identity{
		Name: c.Name, Node: w.self.Load(), Instance: c.Instance, Version: c.Version, Socket: c.Socket, MAC: c.MAC,
		LIF: c.lifName(), Fabric: string(c.Fabric), Interval: c.statsInterval(),
		Profile: c.Profile.Chain(), ProfileHash: c.Profile.Profile.Hash(),
	}
	if w.mesh != nil {
		i.Manager, i.Listen = c.Manager, w.mesh.listen
		i.Instance, i.Incarnation = w.mesh.session.Instance()
	}
	return i
}

// carried calls f for what became of packets and addresses on their way between
// the guest and the fabric.
func (w *Worker) carried(f func(name string, value uint64)) {
	c := w.carrier
	f("packets_no_route", c.noRoute.Load())
	f("packets_no_link", c.noLink.Load())
	f("packets_dropped", c.dropped.Load())
	f("frames_bad_header", c.badHeader.Load())
	f("frames_bad_class", c.badClass.Load())
	f("frames_no_lan", c.noLAN.Frames.Load())
	f("addresses_refused", w.addresses.refused.Load())
	if w.mesh != nil && w.mesh.relay != nil {
		_, opened, bytes := w.mesh.relay.Counters()
		f("relay_connections", opened)
		f("relay_bytes", bytes)
	}
	if w.lan != nil {
		w.lan.Counters.Each(func(name string, v uint64) { f("lan_"+name, v) })
	}
}

// peers returns the counters of the link, of each peer that there is.
func (c *carrier) peers() []fabric.PeerStats {
	link := c.link.Load()
	if link == nil {
		return nil
	}
	switch l := (*link).(type) {
	case interface{ Stats() []fabric.PeerStats }:
		return l.Stats()
	case interface{ Stats() fabric.PeerStats }:
		return []fabric.PeerStats{l.Stats()}
	}
	return nil
}
