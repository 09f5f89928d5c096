// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/guestmem"
)

func TestMemoryOf_TellsSharedFromPrivate(t *testing.T) {
	if shared, private := memoryOf(nil); shared != 0 || private != 0 {
		t.Errorf("without a guest: %d, %d", shared, private)
	}
	mem := guestmem.New(guestmem.Options{})
	t.Cleanup(mem.Close)
	ram, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(ram) }()
	if err := unix.Ftruncate(ram, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := mem.MapFile(0, 1<<20, ram, 0, guestmem.Read|guestmem.Write); err != nil {
		t.Fatal(err)
	}
	if err := mem.MapMessage(1<<32, 8192, guestmem.Read); err != nil {
		t.Fatal(err)
	}
	if shared, private := memoryOf(mem); shared != 1<<20 || private != 8192 {
		t.Errorf("%d bytes shared, %d not", shared, private)
	}
}
