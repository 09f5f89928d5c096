// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/worker"
	"github.com/ernic-dev/ernic/worker/stats"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

// metricsAddress is where the first worker of a host shows its metrics.
const metricsAddress = "127.0.0.1:9840"

// off is the value of --metrics-listen for none.
const off = "off"

// observe are the flags of what the worker counts.
type observe struct {
	set                   *pflag.FlagSet
	file, format, metrics string
	qps                   int
}

func (o *observe) addFlags(c *cobra.Command) {
	o.set = c.Flags()
	o.set.StringVar(&o.file, "stats-file", "", "`path` of a file with all counters, written at the start and then every stats interval (default: none)")
	o.set.StringVar(&o.format, "stats-format", string(section.Text), "`format` of the stats file: text or json")
	o.set.IntVar(&o.qps, "stats-qps", 0, "most queue `pairs` to show one by one in the stats file and the metrics, at most "+strconv.Itoa(stats.MaxQPs))
	o.set.StringVar(&o.metrics, "metrics-listen", metricsAddress, "`address` to answer Prometheus on, at /metrics, or off; "+
		"one that other hosts reach needs certificates (it is https then) or --insecure; "+
		"while another worker of the host has the default one, this worker shows none")
	complete(c, "stats-format", string(section.Text), string(section.JSON))
	complete(c, "metrics-listen", off, metricsAddress)
}

// config checks the flags. protection is that of a listener which other hosts
// reach; insecure says that it needs none.
func (o *observe) config(protection *cli.TLS, insecure bool) (worker.Observe, error) {
	c := worker.Observe{StatsFile: o.file, StatsQPs: o.qps, Metrics: o.metrics}
	var err error
	if c.StatsFormat, err = section.ParseFormat(o.format); err != nil {
		return c, cli.Usagef("--stats-format %w", err)
	}
	if o.qps < 0 || o.qps > stats.MaxQPs {
		return c, cli.Usagef("--stats-qps %d is not between 0 and %d", o.qps, stats.MaxQPs)
	}
	switch o.metrics {
	case off, "":
		c.Metrics = ""
		return c, nil
	}
	if _, port, err := net.SplitHostPort(o.metrics); err != nil {
		return c, cli.Usagef("--metrics-listen %q is neither host:port nor off: %w", o.metrics, err)
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return c, cli.Usagef("--metrics-listen %q: %q is no port", o.metrics, port)
	}
	c.MetricsIfFree = !o.set.Changed("metrics-listen")
	if err := cli.CheckListen("metrics-listen", o.metrics, protection.Enabled(), insecure); err != nil {
		return c, err
	}
	if protection.Enabled() && cli.CheckListen("metrics-listen", o.metrics, false, false) != nil {
		c.MetricsTLS, err = protection.HTTPS()
	}
	return c, err
}
