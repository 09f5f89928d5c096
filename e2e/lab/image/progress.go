// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// heartbeat is how often a long stage says that it is alive.
const heartbeat = 15 * time.Second

// Progress prints the stages of a build with the time since the first one, and
// what a long stage last wrote to its log. The zero value and nil print
// nothing.
type Progress struct {
	w     io.Writer
	begun time.Time
	mu    sync.Mutex // keeps lines whole
}

// NewProgress returns a Progress that prints to w.
func NewProgress(w io.Writer) *Progress { return &Progress{w: w, begun: time.Now()} }

// Sayf prints one line.
func (p *Progress) Sayf(format string, args ...any) {
	if p == nil || p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A terminal that is gone must not end the build.
	_, _ = fmt.Fprintf(p.w, "lab [%4.0f s] %s\n", time.Since(p.begun).Seconds(), fmt.Sprintf(format, args...))
}

// stage announces a stage and, until the returned function is called, that it
// still runs.
func (p *Progress) stage(log *buildLog, format string, args ...any) (done func()) {
	name := fmt.Sprintf(format, args...)
	p.Sayf("%s", name)
	start, stop, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		t := time.NewTicker(heartbeat)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				p.Sayf("... %s, %.0f s: %s", name, time.Since(start).Seconds(), log.lastLine())
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// buildLog is the log file of one component, with its end kept in memory for
// error messages.
type buildLog struct {
	path string
	mu   sync.Mutex // guards what follows
	w    io.Writer
	tail []byte
}

// tailSize is the number of bytes kept for error messages.
const tailSize = 4 << 10

func (l *buildLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, b...)
	if n := len(l.tail) - tailSize; n > 0 {
		l.tail = append(l.tail[:0], l.tail[n:]...)
	}
	return l.w.Write(b)
}

func (l *buildLog) printf(format string, args ...any) {
	// The log is a help for people; a full disk shows itself in the build.
	_, _ = fmt.Fprintf(l, format+"\n", args...)
}

func (l *buildLog) lines() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := bytes.ReplaceAll(bytes.TrimSpace(l.tail), []byte("\r"), []byte("\n"))
	return bytes.Split(bytes.Clone(t), []byte("\n"))
}

func (l *buildLog) lastLine() string {
	lines := l.lines()
	last := string(lines[len(lines)-1])
	if len(last) > 100 {
		last = last[:100] + "..."
	}
	return last
}

// end is the last n lines.
func (l *buildLog) end(n int) string {
	lines := l.lines()
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}
