// SPDX-License-Identifier: Apache-2.0

// Package cli is what the command lines of the programs have in common: flags
// that can come from the environment, logging, version, shell completion,
// signals and exit status.
//
// A program ends with status 0 when it did what was asked, 1 when it could
// not, 2 when the command line is wrong. It says why in one sentence.
package cli
