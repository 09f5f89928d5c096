// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
)

// A memory backend with share=off comes with a descriptor like any other, but what
// the guest writes never gets there.
func TestAdminQueue_FindsThatTheGuestWritesToOtherMemory(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	r.Admin(ethtest.Op(abi.OpNop))
	if r.lif.MemoryApart() {
		t.Error("an empty command after others is taken for memory that is not shared")
	}

	other := ethtest.NewGuest(t, 64<<20)
	r.lif.Attach(other.Mem)
	r.lif.BusMaster(true)
	if r.lif.MemoryApart() {
		t.Error("memory is called not shared before a command came")
	}
	r.MustDevCmd(ethtest.Op(abi.OpReset), nil)
	r.Identify()
	r.InitPort()
	lif := ethtest.Op(abi.OpLIFInit)
	lif.SetInfoAddress(r.Alloc(abi.LIFInfoSize))
	r.MustDevCmd(lif, nil)
	r.MustDevCmd(abi.QInit{
		Type: abi.QTypeAdmin, Intr: ethtest.AdminVector, Flags: abi.QFlagIRQ | abi.QFlagEnable, RingLog2: 4,
		Ring: r.Alloc(64 << 4), CQ: r.Alloc(16 << 4),
	}.Command(), nil)
	r.Dev.Doorbell(abi.QTypeAdmin, abi.MakeDoorbell(0, 1))
	eventually(t, "what is wrong with the memory", r.lif.MemoryApart)

	r.lif.Attach(r.Mem)
	if r.lif.MemoryApart() {
		t.Error("the next guest is called what the last one was")
	}
	r.lif.BusMaster(true)
	r.Probe(0)
	if r.lif.MemoryApart() {
		t.Error("memory that is shared is called not shared")
	}
}
