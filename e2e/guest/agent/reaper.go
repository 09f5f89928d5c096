// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper starts processes and waits for all children of process 1: those that
// it started, and orphans that the kernel handed over. One place does both,
// because wait4(-1) would take the exit status away from any other waiter.
type reaper struct {
	mu       sync.Mutex // held across fork and across a sweep
	children map[int]chan syscall.WaitStatus
}

func newReaper() *reaper {
	r := &reaper{children: map[int]chan syscall.WaitStatus{}}
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, unix.SIGCHLD)
	go func() {
		for range deaths {
			r.sweep()
		}
	}()
	return r
}

func (r *reaper) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if c := r.children[pid]; c != nil {
			delete(r.children, pid)
			c <- ws
		}
	}
}

// start runs argv in a process group of its own. The channel brings its wait
// status once.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, nil, err
	}
	c := make(chan syscall.WaitStatus, 1)
	r.children[pid] = c
	return pid, c, nil
}

// signal sends sig to the process group of a running child. It cannot hit a
// reused number, because the number is free only after a sweep.
func (r *reaper) signal(pid int, sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[pid] != nil {
		// A group that ended in this moment is what the caller wanted.
		_ = syscall.Kill(-pid, sig)
	}
}
