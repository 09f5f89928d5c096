// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/record"
)

// maxOps is the most changes in one transaction: etcd takes 128 operations, and meta is one of them.
const maxOps = 100

// Commit implements manager.Store.
func (t *term) Commit(ch core.Changes) error {
	c := t.cluster
	ops := c.operations(&ch)
	// What is torn is never seen by a worker as what it is not: it begins a new history when it is read.
	torn := t.metaOp(&ch, true)
	for len(ops) > maxOps {
		if err := t.write(append([]clientv3.Op{torn}, ops[:maxOps]...)); err != nil {
			return err
		}
		ops = ops[maxOps:]
	}
	return t.write(append(ops, t.metaOp(&ch, false)))
}

func (t *term) metaOp(ch *core.Changes, torn bool) clientv3.Op {
	return clientv3.OpPut(t.cluster.metaKey(), encodeMeta(ch.History, ch.Revision, torn))
}

// operations returns changes in an order in which no prefix of them leaves a claim without its node.
func (c *Cluster) operations(ch *core.Changes) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(ch.Nodes)+len(ch.Claims)+len(ch.GoneClaims)+len(ch.GoneNodes)+1)
	for i := range ch.Nodes {
		ops = append(ops, clientv3.OpPut(c.nodeKey(ch.Nodes[i].ID), string(record.EncodeNode(&ch.Nodes[i]))))
	}
	for i := range ch.Claims {
		rec := &ch.Claims[i]
		ops = append(ops, clientv3.OpPut(c.claimKey(rec.Node, rec.GID), string(record.EncodeClaim(rec))))
	}
	for _, k := range ch.GoneClaims {
		ops = append(ops, clientv3.OpDelete(c.claimKey(k.Node, k.GID)))
	}
	for _, id := range ch.GoneNodes {
		ops = append(ops, clientv3.OpDelete(c.nodeKey(id)))
	}
	return ops
}

func (t *term) write(ops []clientv3.Op) error {
	if _, err := t.do(ops...); err != nil {
		if errors.Is(err, manager.ErrDeposed) {
			return err
		}
		return fmt.Errorf("the state at %s: %w", t.cluster.cfg.Target, err)
	}
	return nil
}

// do carries out a transaction if this manager still leads. Doing it twice must come to the same as once: whether one
// that had no answer was carried out is not known.
func (t *term) do(ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	leads := clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.created)
	var resp *clientv3.TxnResponse
	err := t.persist(func(ctx context.Context) (err error) {
		resp, err = t.cluster.client.Txn(ctx).If(leads).Then(ops...).Commit()
		return err
	})
	if err != nil {
		return nil, err
	}
	if !resp.Succeeded {
		t.cancel()
		return nil, manager.ErrDeposed
	}
	return resp, nil
}

// persist repeats a request for as long as etcd is merely away. When the term ends meanwhile it returns ErrDeposed.
func (t *term) persist(request func(context.Context) error) error {
	for {
		if t.ctx.Err() != nil {
			return manager.ErrDeposed
		}
		ctx, cancel := context.WithTimeout(t.ctx, requestTimeout)
		err := request(ctx)
		cancel()
		switch {
		case err == nil:
			t.cluster.reached(nil)
			return nil
		case t.ctx.Err() != nil:
			return manager.ErrDeposed
		case !isAway(err):
			return err
		}
		t.cluster.reached(err)
		pause(t.ctx, retryPause)
	}
}

// isAway reports whether an error means that etcd could not be asked now, or has no leader.
func isAway(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var own interface{ Code() codes.Code }
	if errors.As(err, &own) {
		return own.Code() == codes.Unavailable || own.Code() == codes.DeadlineExceeded
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}
