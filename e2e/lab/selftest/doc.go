// SPDX-License-Identifier: Apache-2.0

// Package selftest proves the guest lab itself in real guests, without any
// worker: that guests boot, have what the tests need, obey, and leave nothing
// behind.
package selftest
