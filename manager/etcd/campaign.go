// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/ernic-dev/ernic/manager"
)

// Campaign implements manager.Election. It waits for etcd as long as for the election.
func (c *Cluster) Campaign(ctx context.Context) (manager.Term, error) {
	for {
		t, err := c.campaign(ctx)
		if ctx.Err() != nil {
			if t != nil {
				t.End()
			}
			return nil, ctx.Err()
		}
		c.reached(err)
		if err == nil {
			return t, nil
		}
		pause(ctx, retryPause)
	}
}

// campaign takes part once, under a lease of its own.
func (c *Cluster) campaign(ctx context.Context) (*term, error) {
	lease, err := c.grant(ctx)
	if err != nil {
		return nil, err
	}
	// The session keeps the lease alive until it is closed or runs out.
	session, err := concurrency.NewSession(c.client, concurrency.WithLease(lease), concurrency.WithContext(ctx),
		concurrency.WithTTL(int(c.cfg.Lease/time.Second)))
	if err != nil {
		return nil, err
	}
	t := &term{cluster: c, session: session}
	t.ctx, t.cancel = context.WithCancel(ctx)
	t.follow.Go(func() {
		select {
		case <-session.Done():
		case <-t.ctx.Done():
		}
		t.cancel()
	})
	if err := t.win(); err != nil {
		t.End()
		return nil, err
	}
	return t, nil
}

func (c *Cluster) grant(ctx context.Context) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := c.client.Grant(ctx, int64(c.cfg.Lease/time.Second))
	if err != nil {
		return 0, err
	}
	return resp.ID, nil
}

// win waits until every manager that took part before has gone.
func (t *term) win() error {
	c := t.cluster
	value, err := json.Marshal(candidateJSON{
		c.cfg.Self.Name, c.cfg.Self.Address, c.cfg.Self.Gossip, c.cfg.Self.Version, c.cfg.Self.Started.Round(0),
	})
	if err != nil {
		return err
	}
	// The key is named after the lease, which makes it known before the election is won.
	key := fmt.Sprintf("%s%x", c.managersPrefix(), t.session.Lease())
	c.own.Store(&key)
	e := concurrency.NewElection(t.session, c.cfg.Target.Prefix+"/managers")
	// It waits for ever, also with a lease that has run out; the context ends with that.
	if err := e.Campaign(t.ctx, string(value)); err != nil {
		return err
	}
	t.key, t.created = e.Key(), e.Rev()
	return nil
}

// term is the time for which this manager leads. It implements manager.Term.
type term struct {
	cluster *Cluster
	session *concurrency.Session
	// ctx ends when the term does.
	ctx    context.Context
	cancel context.CancelFunc
	follow sync.WaitGroup
	// key is that of this manager under managers, and created the revision of etcd that it was made with. A manager leads
	// for as long as this very key is there.
	key     string
	created int64
}

// Over implements manager.Term.
func (t *term) Over() <-chan struct{} { return t.ctx.Done() }

// End implements manager.Term.
func (t *term) End() {
	t.cancel()
	t.follow.Wait()
	t.session.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if _, err := t.cluster.client.Revoke(ctx, t.session.Lease()); err != nil {
		t.cluster.cfg.Log.Debug().Err(err).Msg("the lease in etcd is left to run out")
	}
}
