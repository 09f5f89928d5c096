// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
)

// Pair runs a client and a server program against each other in two guests, or
// in one.
type Pair struct {
	Server, Client *guest.Guest
	Env            []string // for both programs
	// Patience bounds one Run, 2 minutes unless set.
	Patience time.Duration
}

// firstPort is the first TCP port the programs exchange their parameters on.
const firstPort = 18600

var ports atomic.Uint32

// Port returns a port that no earlier program of any pair used: a closed
// listener may linger.
func (p *Pair) Port() int { return firstPort + int(ports.Add(1)) }

// Outcome is what both sides left.
type Outcome struct {
	Server, Client guest.Result
	Elapsed        time.Duration
}

// listening waits in the server's guest until something listens: a TCP port,
// or with port 0 an rdma_cm id.
const listening = `
for i in $(seq 600); do
  %s && exit 0
  sleep 0.1
done
echo 'the server does not listen' >&2
exit 1
`

// Run starts the server, waits until it listens on port (0: an rdma_cm
// listener), runs the client and waits for both. Either side ending with
// another status than 0 is an error that carries both outputs.
func (p *Pair) Run(ctx context.Context, port int, server, client string) (o Outcome, err error) {
	patience := p.Patience
	if patience == 0 {
		patience = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done within %v", patience))
	defer cancel()
	begun := time.Now()
	sv, err := p.Server.Start(ctx, guest.Shell("exec "+server).With(p.Env...))
	if err != nil {
		return o, err
	}
	test := fmt.Sprintf("ss -Hltn 'sport = :%d' | grep -q .", port)
	if port == 0 {
		test = "rdma resource show cm_id | grep -q LISTEN"
	}
	// A server that has ended will not listen any more.
	probe, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-sv.Done():
			stop(errors.New("the server has ended"))
		case <-probe.Done():
		}
	}()
	if _, err = p.Server.Run(probe, guest.Shellf(listening, test)); err != nil {
		cancel()
		o.Server, _ = sv.Wait()
		return o, fmt.Errorf("server %q: %w\n%s", server, err, text(o.Server))
	}
	o.Client, err = p.Client.Run(ctx, guest.Shell("exec "+client).With(p.Env...))
	if err != nil {
		cancel()
		o.Server, _ = sv.Wait()
		return o, fmt.Errorf("client %q: %w\nserver:\n%s", client, err, text(o.Server))
	}
	o.Server, err = sv.Wait()
	o.Elapsed = time.Since(begun)
	if err != nil {
		return o, fmt.Errorf("server %q: %w\nclient:\n%s", server, err, text(o.Client))
	}
	return o, nil
}

func text(r guest.Result) string { return strings.TrimSpace(r.Stdout + "\n" + r.Stderr) }
