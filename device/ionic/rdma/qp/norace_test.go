// SPDX-License-Identifier: Apache-2.0

//go:build !race

package qp_test

// defaultSeeds of the model test.
const defaultSeeds = 24
