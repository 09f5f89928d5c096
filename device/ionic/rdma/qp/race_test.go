// SPDX-License-Identifier: Apache-2.0

//go:build race

package qp_test

// defaultSeeds of the model test. It has one goroutine; the detector finds
// nothing in it and takes a hundred times as long.
const defaultSeeds = 3
