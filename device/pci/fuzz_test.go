// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// A script is a run of 4-byte records {op, n, offset} followed by n bytes each
// for writes: op bit 0 selects a write, bit 1 a BAR.
func FuzzAccessSequence(f *testing.F) {
	rec := func(op, n byte, off uint16, data ...byte) []byte {
		return append([]byte{op, n, byte(off), byte(off >> 8)}, data...)
	}
	f.Add(bytes.Join([][]byte{
		rec(0, 64, 0), rec(1, 4, 0x10, 0xff, 0xff, 0xff, 0xff), rec(0, 4, 0x10),
		rec(1, 2, 0x04, 0x06, 0x04), rec(1, 2, 0x68, 0, 0x80), rec(0, 2, 0x04),
	}, nil))
	f.Add(bytes.Join([][]byte{
		rec(3, 8, 0x7ffc, 1, 2, 3, 4, 5, 6, 7, 8), rec(2, 255, 0x8ff0), rec(2, 16, 0xfff8), rec(0, 8, 0x0ffc),
	}, nil))
	f.Add(rec(1, 3, 0x43, 1, 2, 3))

	f.Fuzz(func(t *testing.T, script []byte) {
		fn, r := newNIC(t)
		fresh := fn.space.cur
		for len(script) >= 4 {
			op, n := script[0], int(script[1])
			off := uint64(binary.LittleEndian.Uint16(script[2:]))
			script = script[4:]
			p := make([]byte, n)
			if op&1 != 0 {
				n = copy(p, script)
				p, script = p[:n], script[n:]
			}
			size := uint64(ConfigSize)
			if op&2 != 0 {
				size = fn.config.BARs[0].Size
			}
			before := fn.space.cur
			var err error
			switch op & 3 {
			case 0:
				err = fn.ReadConfig(off, p)
			case 1:
				err = fn.WriteConfig(off, p)
			case 2:
				err = fn.ReadBAR(0, off, p)
			case 3:
				err = fn.WriteBAR(0, off, p)
			}
			if fits := off+uint64(n) <= size; fits != (err == nil) {
				t.Fatalf("op %d of %d bytes at %#x: %v", op&3, n, off, err)
			}
			if op&3 != 1 || err != nil {
				if fn.space.cur != before {
					t.Fatalf("op %d of %d bytes at %#x changed a register", op&3, n, off)
				}
				continue
			}
			checkRegisters(t, fn, r, &fresh)
		}
	})
}

// checkRegisters holds what must be true after any write.
func checkRegisters(t *testing.T, f *Function, r *recorder, fresh *[ConfigSize]byte) {
	t.Helper()
	for i, b := range f.space.cur {
		if (b^fresh[i])&^f.space.write[i] != 0 {
			t.Fatalf("register byte %#x = %#x: a read-only bit of %#x changed", i, b, fresh[i])
		}
	}
	master := f.space.cur[regCommand]&cmdBusMaster != 0
	told := false
	for _, c := range r.calls {
		switch c {
		case "master on":
			told = true
		case "master off", "reset":
			told = false
		}
	}
	if master != f.BusMaster() || master != told {
		t.Fatalf("COMMAND says bus master %v, the function %v, the device was told %v", master, f.BusMaster(), told)
	}
	if s := f.space.cur[capPM+pmcsr] & pmcsrPowerState; s == 1 || s == 2 {
		t.Fatalf("the function is in D%d, which it does not have", s)
	}
}
