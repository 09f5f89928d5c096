// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"time"
)

// Reset restarts the guest's machine as its reset button does: the kernel has no
// say in it. The same QEMU goes on, with the same cards. It returns when the guest
// has booted again. Commands that still run in it end with ErrGone.
func (g *Guest) Reset(ctx context.Context) error {
	return g.restart(ctx, func(q *QMP) error {
		_, err := q.Execute(ctx, "system_reset", nil)
		return err
	})
}

// Reboot is Reset by the guest's kernel, which shuts its devices down before.
func (g *Guest) Reboot(ctx context.Context) error {
	return g.restart(ctx, func(*QMP) error {
		_, err := g.Start(ctx, Cmd{Argv: []string{"busybox", "reboot", "-f"}})
		return err
	})
}

func (g *Guest) restart(ctx context.Context, begin func(*QMP) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootPatience, fmt.Errorf("no reset within %v", bootPatience))
	defer cancel()
	q, err := g.QMP(ctx)
	if err != nil {
		return err
	}
	// QEMU was told to end when the guest resets; from now on it starts again.
	if _, err := q.Execute(ctx, "set-action", map[string]any{"reboot": "reset"}); err != nil {
		return fmt.Errorf("guest %s: %w", g.cfg.Name, err)
	}
	before := q.count("RESET")
	if err := begin(q); err != nil {
		return fmt.Errorf("guest %s: %w", g.cfg.Name, err)
	}
	// The agent of before must not answer for the one to come.
	for q.count("RESET") == before {
		select {
		case <-time.After(dialPause):
		case <-g.done:
			return fmt.Errorf("guest %s: QEMU has ended: %w%s", g.cfg.Name, g.exitStatus(), g.logs())
		case <-ctx.Done():
			return fmt.Errorf("guest %s: %w%s", g.cfg.Name, context.Cause(ctx), g.logs())
		}
	}
	g.mu.Lock()
	old := g.client
	g.client = nil
	g.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	return g.Ready(ctx)
}

// count returns how many events of a kind there were.
func (q *QMP) count(event string) (n int) {
	for _, e := range q.Events() {
		if e.Event == event {
			n++
		}
	}
	return n
}
