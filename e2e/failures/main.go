// SPDX-License-Identifier: Apache-2.0

// Command failures copies what go test prints, and says at the end once more
// which tests failed and why: of a long run often only the last lines are seen.
//
//	go test -v ./... 2>&1 | go run ./e2e/failures
//
// It lives on through an interrupt, since what ends of it still prints.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	if err := follow(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "failures:", err)
		os.Exit(1)
	}
}

// follow copies in to out line by line and appends the summary.
func follow(in io.Reader, out io.Writer) error {
	r := bufio.NewReader(in)
	var s summary
	for {
		line, err := r.ReadString('\n')
		if _, writeErr := io.WriteString(out, line); writeErr != nil {
			return writeErr
		}
		s.read(line)
		if errors.Is(err, io.EOF) {
			_, err = io.WriteString(out, s.text())
			return err
		}
		if err != nil {
			return err
		}
	}
}
