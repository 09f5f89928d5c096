// SPDX-License-Identifier: Apache-2.0

// Package child starts processes that cannot outlive this one.
//
// The kernel can send a child a signal when its parent dies (PR_SET_PDEATHSIG),
// even when the parent is killed. But "parent" means the thread that started
// the child, and Go ends threads as it likes. A Thread is one that stays: all
// children started on it live until they end, the Thread is closed, or this
// process is gone.
//
// A thread can also live in another network name space than the rest of the
// process. What it starts inherits that name space.
package child

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// ErrClosed is returned for work on a closed Thread.
var ErrClosed = errors.New("the thread that starts processes is closed")

// Thread is an operating system thread of its own. It is safe for concurrent
// use.
type Thread struct {
	work chan func()
	done chan struct{} // closed when the thread has ended
	once sync.Once
	quit chan struct{}
}

// NewThread starts a thread and runs setup on it first.
func NewThread(setup func() error) (*Thread, error) {
	t := &Thread{work: make(chan func()), done: make(chan struct{}), quit: make(chan struct{})}
	ready := make(chan error, 1)
	go onThread(func() {
		defer close(t.done)
		err := setup()
		ready <- err
		if err != nil {
			return
		}
		for {
			select {
			case f := <-t.work:
				f()
			case <-t.quit:
				return
			}
		}
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	return t, nil
}

// onThread runs f on a thread that ends with f, and whatever f did to the
// thread dies with it. That needs a goroutine that is never unlocked, and not
// the main thread: Go cannot end that one, it parks it, and the children of a
// parked thread live on.
func onThread(f func()) {
	runtime.LockOSThread()
	if syscall.Gettid() != syscall.Getpid() {
		f()
		return
	}
	// While this goroutine holds the main thread, the next one gets another.
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(started)
		f()
	}()
	<-started
	runtime.UnlockOSThread()
}

// Do runs f on the thread and returns its error.
func (t *Thread) Do(f func() error) error {
	result := make(chan error, 1)
	select {
	case t.work <- func() { result <- f() }:
		return <-result
	case <-t.done:
		return ErrClosed
	}
}

// Start starts cmd as a child of the thread, in a process group of its own: a
// ^C on the terminal reaches this process, which ends its children in order.
func (t *Thread) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return t.Do(cmd.Start)
}

// Close ends the thread. The kernel kills the children that still run.
func (t *Thread) Close() {
	t.once.Do(func() { close(t.quit) })
	<-t.done
}

var (
	defaultOnce   sync.Once
	defaultThread *Thread
)

// Start starts cmd on a thread that lives as long as this process.
func Start(cmd *exec.Cmd) error {
	defaultOnce.Do(func() {
		// A setup that does nothing cannot fail.
		defaultThread, _ = NewThread(func() error { return nil })
	})
	return defaultThread.Start(cmd)
}
