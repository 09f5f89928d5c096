// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
	"github.com/ernic-dev/ernic/e2e/site"
)

// bringUpRxe makes a Soft-RoCE device on the guest's virtio-net interface.
const bringUpRxe = `
modprobe virtio_net
ip link set eth0 up
ip addr add %s/24 dev eth0
modprobe rdma_rxe
rdma link add rxe0 type rxe netdev eth0
modprobe ib_uverbs
for i in $(seq 100); do
  grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state 2>/dev/null && exit 0
  sleep 0.1
done
echo 'the Soft-RoCE port did not become active' >&2
exit 1
`

// softRoCE measures the same tools over rdma_rxe on a virtio-net cable.
func softRoCE(ctx context.Context, logs string, progress *image.Progress, runs int) (results, error) {
	l, err := lab.New(ctx, lab.Options{Name: "demo-rxe", LogDir: logs, Progress: progress})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := l.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	progress.Sayf("booting two guests with Soft-RoCE over virtio-net")
	a, b := l.Link("cable")
	guests, err := l.Boot(ctx,
		guest.Config{Name: "rxe1", Links: []guest.Link{a}}, guest.Config{Name: "rxe2", Links: []guest.Link{b}})
	if err != nil {
		return nil, err
	}
	ips := []string{"192.168.201.1", "192.168.201.2"}
	for i, g := range guests {
		if _, err := g.Run(ctx, guestShell(bringUpRxe, ips[i])); err != nil {
			return nil, err
		}
	}
	r, err := measure(ctx, &suite{
		pair:   &site.Pair{Server: guests[0], Client: guests[1]},
		device: "rxe0", server: ips[0], client: ips[1], runs: runs, progress: progress,
	})
	if err != nil {
		return nil, explained(ctx, l, err)
	}
	return r, nil
}
