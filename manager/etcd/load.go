// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ernic-dev/ernic/manager/core"
)

// pageSize is how many keys are read at once.
const pageSize = 4000

// Load implements manager.Store. It reads the state as of one revision of etcd at which this manager leads: nobody else
// writes after that.
func (t *term) Load() (core.State, error) {
	c := t.cluster
	resp, err := t.do(clientv3.OpGet(c.metaKey()))
	if err != nil {
		return core.State{}, fmt.Errorf("the state at %s: %w", c.cfg.Target, err)
	}
	at := resp.Header.Revision
	var state core.State
	err = t.each(at, c.nodesPrefix(), func(key string, value []byte) error {
		rec, err := decodeNode(key, value)
		state.Nodes = append(state.Nodes, rec)
		return err
	})
	if err == nil {
		err = t.each(at, c.claimsPrefix(), func(key string, value []byte) error {
			rec, err := decodeClaim(key, value)
			state.Claims = append(state.Claims, rec)
			return err
		})
	}
	if err != nil {
		return core.State{}, err
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		if len(state.Nodes)+len(state.Claims) > 0 {
			return core.State{}, &DamagedError{c.cfg.Target, fmt.Errorf("%s is missing", c.metaKey())}
		}
		return core.State{History: c.cfg.History()}, nil
	}
	meta, history, err := decodeMeta(kvs[0].Value)
	switch {
	case err != nil:
		return core.State{}, &DamagedError{c.cfg.Target, err}
	case meta.Schema != Schema:
		return core.State{}, fmt.Errorf("the state at %s has schema %d, this manager reads schema %d: run the manager that wrote it",
			c.cfg.Target, meta.Schema, Schema)
	case meta.Torn:
		history = c.cfg.History()
	}
	state.History, state.Revision = history, meta.Revision
	return state, nil
}

// each calls take for every key under a prefix, which it is given without that, as of a revision of etcd. An error of
// take means that the state is damaged.
func (t *term) each(at int64, prefix string, take func(key string, value []byte) error) error {
	c := t.cluster
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		var resp *clientv3.GetResponse
		err := t.persist(func(ctx context.Context) (err error) {
			resp, err = c.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(at), clientv3.WithLimit(pageSize))
			return err
		})
		if err != nil {
			return fmt.Errorf("the state at %s: %w", c.cfg.Target, err)
		}
		var damage []error
		for _, kv := range resp.Kvs {
			if err := take(string(kv.Key)[len(prefix):], kv.Value); err != nil {
				damage = append(damage, fmt.Errorf("%s: %w", kv.Key, err))
			}
		}
		if len(damage) > 0 {
			return &DamagedError{c.cfg.Target, errors.Join(damage...)}
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
