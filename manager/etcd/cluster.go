// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
)

const (
	// requestTimeout bounds one request; those that may be repeated are.
	requestTimeout = 2 * time.Second
	// retryPause is the pause before a request is repeated.
	retryPause = 200 * time.Millisecond
	// farewell is how long a manager that ends waits for etcd to have heard it.
	farewell = 500 * time.Millisecond
	// MinLease is the shortest lease, which etcd itself sets.
	MinLease = 2 * time.Second
	// DefaultLease is how long a manager that is not heard leads on.
	DefaultLease = 5 * time.Second
)

// Config says where the state is and who takes part.
type Config struct {
	Target Target
	TLS    *tls.Config // for a target with TLS
	// Self is this manager as the others see it. Leads and Self are not used.
	Self manager.Candidate
	// Lease is how long a manager that is not heard leads on: whole seconds, at least MinLease. Default DefaultLease.
	Lease time.Duration
	// History begins a state, and one that was torn. It must never return the same twice.
	History func() core.History
	Log     zerolog.Logger
}

// Cluster is a connection to the state. It implements manager.Election.
type Cluster struct {
	cfg    Config
	client *clientv3.Client
	stop   context.CancelFunc
	ended  sync.WaitGroup

	// own is the key of this manager under managers, nil before there is one.
	own        atomic.Pointer[string]
	candidates atomic.Pointer[[]candidate]
	// unreachable is set while etcd does not answer, so that the log says so once.
	unreachable atomic.Bool
}

// candidate is a manager and the key that it takes part with.
type candidate struct {
	manager.Candidate
	key     string
	created int64
}

// Open returns a connection that is made in the background: an etcd that is away is waited for.
func Open(cfg Config) (*Cluster, error) {
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Lease < MinLease || cfg.Lease%time.Second != 0 {
		return nil, fmt.Errorf("etcd: a lease of %s is not whole seconds from %s up", cfg.Lease, MinLease)
	}
	ctx, stop := context.WithCancel(context.Background())
	client, err := clientv3.New(clientv3.Config{
		Context:              ctx,
		Endpoints:            cfg.Target.Endpoints,
		TLS:                  cfg.TLS,
		DialTimeout:          requestTimeout,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: requestTimeout,
		DialOptions:          []grpc.DialOption{grpc.WithNoProxy()},
		Logger:               zap.NewNop(),
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("etcd at %s: %w", cfg.Target, err)
	}
	c := &Cluster{cfg: cfg, client: client, stop: stop}
	c.candidates.Store(&[]candidate{})
	c.ended.Go(func() { c.observe(ctx) })
	return c, nil
}

// Close ends the connection.
func (c *Cluster) Close() error {
	c.stop()
	err := c.client.Close()
	c.ended.Wait()
	// Its context has just been ended, which is all that it has to say.
	if err != nil && !isCanceled(err) {
		return fmt.Errorf("etcd at %s: %w", c.cfg.Target, err)
	}
	return nil
}

func (c *Cluster) managersPrefix() string { return c.cfg.Target.Prefix + "/managers/" }

// Candidates implements manager.Election.
func (c *Cluster) Candidates() []manager.Candidate {
	own := c.own.Load()
	var all []manager.Candidate
	for _, x := range *c.candidates.Load() {
		m := x.Candidate
		m.Self = own != nil && x.key == *own
		all = append(all, m)
	}
	return all
}

// reached notes whether etcd answers.
func (c *Cluster) reached(err error) {
	switch {
	case err == nil && c.unreachable.Swap(false):
		c.cfg.Log.Info().Str("event", "store_reachable").Stringer("store", c.cfg.Target).Msg("etcd answers again")
	case err != nil && !c.unreachable.Swap(true):
		c.cfg.Log.Error().Str("event", "store_unreachable").Stringer("store", c.cfg.Target).Err(err).
			Msg("etcd does not answer, trying until it does: no manager can lead meanwhile")
	}
}

// observe keeps the candidates up to date until ctx ends.
func (c *Cluster) observe(ctx context.Context) {
	for ctx.Err() == nil {
		from, err := c.list(ctx)
		if err == nil {
			c.follow(ctx, from)
		}
		pause(ctx, retryPause)
	}
}

// list reads all candidates and returns the revision of etcd that they are of.
func (c *Cluster) list(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := c.client.Get(ctx, c.managersPrefix(), clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	all := make([]candidate, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		var j candidateJSON
		if err := json.Unmarshal(kv.Value, &j); err != nil {
			j.Name = "unknown"
		}
		all = append(all, candidate{j.candidate(), string(kv.Key), kv.CreateRevision})
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.created, b.created) })
	if len(all) > 0 {
		all[0].Leads = true
	}
	c.candidates.Store(&all)
	return resp.Header.Revision, nil
}

// follow lists the candidates again with every change, until that fails.
func (c *Cluster) follow(ctx context.Context, from int64) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range c.client.Watch(ctx, c.managersPrefix(), clientv3.WithPrefix(), clientv3.WithRev(from+1)) {
		if resp.Err() != nil {
			return
		}
		if _, err := c.list(ctx); err != nil {
			return
		}
	}
}

// candidateJSON is the value of a key under managers.
type candidateJSON struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	Gossip  string    `json:"gossip,omitempty"`
	Version string    `json:"version,omitempty"`
	Started time.Time `json:"started"`
}

func (j *candidateJSON) candidate() manager.Candidate {
	return manager.Candidate{Name: j.Name, Address: j.Address, Gossip: j.Gossip, Version: j.Version, Started: j.Started}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
