// SPDX-License-Identifier: Apache-2.0

package guest

// rdtsc reads the processor's time stamp counter, which QEMU's emulated processors
// show to their guests as it is.
func rdtsc() uint64
