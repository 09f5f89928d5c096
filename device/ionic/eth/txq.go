// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/netport"
)

// txBurst bounds the descriptors taken under the queue's lock at once, and so
// how long a command waits for the queue.
const txBurst = 64

// txQueue is one transmit queue and its worker.
type txQueue struct {
	ring
	lif     *LIF
	index   int
	count   *shard
	started bool        // the worker runs; changed under LIF.ctl
	awake   atomic.Bool // the worker will look at prod again
	wake    chan struct{}

	// Guarded by mu.
	sgSize uint64 // bytes of a scatter-gather descriptor
	sgMax  int
	descs  [txBurst * abi.TxDescSize]byte
	sg     [abi.TxSGDescSize]byte
	frame  []byte // txHeadroom, then the frame as the guest wrote it
	tso    tsoState
	// offload is the work left in the frame at hand, handed what the port sees
	// of it.
	offload, handed netport.Offload
}

// txHeadroom is room in front of a frame for a VLAN tag.
const txHeadroom = 4

func newTxQueue(l *LIF, i int) *txQueue {
	q := &txQueue{lif: l, index: i, count: l.count.txShard(i), wake: make(chan struct{}, 1)}
	q.bank = l.cfg.Bank
	return q
}

// doorbell records a producer index. It does not block.
func (q *txQueue) doorbell(index uint32) {
	q.prod.Store(index)
	q.kick()
}

// kick makes the worker look at the queue.
func (q *txQueue) kick() {
	if q.awake.CompareAndSwap(false, true) {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

func (q *txQueue) setDMA(on bool) {
	q.ring.setDMA(on)
	if on {
		q.kick()
	}
}

// init takes the rings of a checked Q_INIT. Holds LIF.ctl.
func (q *txQueue) init(c *abi.QInit, mem *guestmem.Space) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.setup(c, mem)
	q.sgSize, q.sgMax = abi.TxSGDescSize, abi.TxMaxSG
	if c.Version == 0 {
		q.sgSize, q.sgMax = abi.TxSGDescSizeV0, abi.TxMaxSGV0
	}
	q.tso = tsoState{}
	if q.frame == nil {
		size := q.lif.maxFrame
		if q.lif.offloader != nil {
			size = max(size, netport.MaxOffload-txHeadroom)
		}
		q.frame = make([]byte, txHeadroom+size)
	}
	if !q.started {
		q.started = true
		q.lif.workers.Go(q.work)
	}
}

// enable and disable are Q_CONTROL. Hold LIF.ctl.
func (q *txQueue) enable() {
	q.mu.Lock()
	q.state.Store(uint32(qEnabled))
	q.mu.Unlock()
	q.kick()
}

func (q *txQueue) disable() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if qState(q.state.Load()) == qEnabled {
		q.state.Store(uint32(qInitialised))
	}
}

// work is the worker: it sleeps until kicked and then empties the ring burst by
// burst.
func (q *txQueue) work() {
	for {
		select {
		case <-q.lif.done:
			return
		case <-q.wake:
		}
		// Cleared before the ring is looked at: a doorbell after that kicks again.
		q.awake.Store(false)
		for q.burst() {
		}
	}
}

// burst transmits up to txBurst descriptors and reports whether there may be
// more.
func (q *txQueue) burst() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running() {
		return false
	}
	n := q.avail()
	if n == 0 {
		return false
	}
	n = min(n, txBurst, q.mask+1-q.cons)
	err := q.mem.ReadAt(q.descs[:n*abi.TxDescSize], q.ring.descs+uint64(q.cons)*abi.TxDescSize)
	done, any := uint32(0), false
	for i := range n {
		slot := q.cons
		q.cons = (q.cons + 1) & q.mask
		if err != nil {
			q.count.lif[abi.TxDescFetchError].Add(1)
			q.tso = tsoState{}
		} else {
			d := abi.DecodeTxDesc(q.descs[i*abi.TxDescSize:])
			q.transmit(&d, slot)
		}
		// The driver frees everything up to the index it is told, and a TSO
		// chain hangs on its first slot: nothing of a chain before its end.
		if !q.tso.open {
			done, any = slot, true
		}
	}
	if any {
		if q.complete(abi.TxCompletion(uint16(done), false)) != nil {
			q.count.lif[abi.TxDMAError].Add(1)
		}
		q.post()
	}
	return true
}
