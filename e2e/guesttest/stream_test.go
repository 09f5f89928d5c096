// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
)

// lines collects the lines of a program that still runs. It is an io.Writer
// that never blocks.
type lines struct {
	mu   sync.Mutex // guards what follows
	rest string
	full []string
	more chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	parts := strings.Split(l.rest+string(b), "\n")
	l.rest = parts[len(parts)-1]
	l.full = append(l.full, parts[:len(parts)-1]...)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.full
	l.full = nil
	return full
}

// follow runs a command and hands each line of its output over as it comes. A
// command that is silent for longer than patience is killed.
func follow(t *testing.T, g *guest.Guest, cmd guest.Cmd, patience time.Duration, each func(line string)) (guest.Result, error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out := &lines{more: make(chan struct{}, 1)}
	cmd.Stdout = out
	c, err := g.Start(ctx, cmd)
	if err != nil {
		t.Fatal(err)
	}
	for ended := false; !ended; {
		silence := time.NewTimer(patience)
		select {
		case <-out.more:
		case <-c.Done():
			ended = true
		case <-silence.C:
			cancel(fmt.Errorf("silent for %v", patience))
			<-c.Done()
			ended = true
		}
		silence.Stop()
		for _, line := range out.take() {
			each(line)
		}
	}
	return c.Wait()
}
