// SPDX-License-Identifier: Apache-2.0

// Package verbs holds a Python program that exercises each verb between two
// guests, or inside one, and compares every byte of memory it may reach with
// what it ought to be.
//
//	guest 1: python3 main.py serve PORT
//	guest 2: python3 main.py run HOST PORT [CHECK...]    one JSON object a line
//
// The server is an endpoint that does what it is told (rpc.py, endpoint.py):
// one program text drives both sides, so a check reads from top to bottom.
package verbs

import (
	"embed"
	"io/fs"
)

//go:embed py/*.py
var files embed.FS

// Files are the sources, for the same directory of a guest.
func Files() fs.FS {
	sub, err := fs.Sub(files, "py")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return sub
}
