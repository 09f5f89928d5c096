// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// open is the set of labs that an interrupt must close.
var open struct {
	sync.Mutex
	labs  map[*Lab]bool
	watch sync.Once
}

func register(l *Lab) {
	open.Lock()
	defer open.Unlock()
	if open.labs == nil {
		open.labs = map[*Lab]bool{}
	}
	open.labs[l] = true
	open.watch.Do(func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		go closeOn(c)
	})
}

func unregister(l *Lab) {
	open.Lock()
	defer open.Unlock()
	delete(open.labs, l)
}

// closeOn closes every open lab at the first signal and lets the process die of
// the second one, which is the first one again.
func closeOn(c <-chan os.Signal) {
	sig := <-c
	signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	open.Lock()
	labs := make([]*Lab, 0, len(open.labs))
	for l := range open.labs {
		labs = append(labs, l)
	}
	open.Unlock()
	for _, l := range labs {
		if err := l.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "lab:", err)
		}
	}
	if s, ok := sig.(syscall.Signal); ok {
		// The process ends of it; if that fails, it ends of the next line.
		_ = syscall.Kill(os.Getpid(), s)
	}
	select {}
}
