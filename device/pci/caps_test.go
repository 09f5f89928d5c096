// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"fmt"
	"slices"
	"testing"
)

// walk follows the capability list as a guest does and returns id@offset.
func walk(t *testing.T, f *Function) []string {
	t.Helper()
	var out []string
	for at := read(t, f, 0x34, 1); at != 0; at = read(t, f, at+1, 1) {
		if at < 0x40 || at%4 != 0 || len(out) > 48 {
			t.Fatalf("capability pointer %#x after %v", at, out)
		}
		out = append(out, fmt.Sprintf("%02x@%02x", read(t, f, at, 1), at))
	}
	return out
}

func TestCapabilityListHoldsWhatWasAskedFor(t *testing.T) {
	for _, c := range []struct {
		pm, express bool
		want        []string
	}{
		{true, true, []string{"01@40", "11@50", "10@60"}},
		{false, true, []string{"11@50", "10@60"}},
		{true, false, []string{"01@40", "11@50"}},
		{false, false, []string{"11@50"}},
	} {
		cfg := nicConfig(&recorder{})
		cfg.PM, cfg.Express = c.pm, c.express
		f, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := walk(t, f); !slices.Equal(got, c.want) {
			t.Errorf("pm %v express %v: capabilities %v, want %v", c.pm, c.express, got, c.want)
		}
		if !c.express {
			write(t, f, capExpress+expDevCtl, 2, devCtlFLR)
		}
		if !c.pm {
			write(t, f, capPM+pmcsr, 2, 3)
		}
		if got := read(t, f, capPM, 8); !c.pm && got != 0 {
			t.Errorf("absent capability reads %#x", got)
		}
	}
}

// The header of a capability is read-only. libvfio-user refuses such a write
// with EPERM; here it completes and changes nothing, as on a real bus, because
// some clients never return from an error.
func TestCapabilityHeadersAndFixedFieldsAreReadOnly(t *testing.T) {
	f, _ := newNIC(t)
	for _, reg := range []struct {
		off uint64
		n   int
	}{
		{capPM, 2}, {capPM + 2, 2}, {capPM + 6, 1}, {capPM + 7, 1},
		{capMSIX, 2}, {capMSIX + msixTable, 4}, {capMSIX + msixPBA, 4},
		{capExpress, 2}, {capExpress + expFlags, 2}, {capExpress + expDevCap, 4},
		{capExpress + expLnkCap, 4}, {capExpress + expLnkSta, 2}, {capExpress + expDevCap2, 4}, {capExpress + expLnkCap2, 4},
	} {
		before := read(t, f, reg.off, reg.n)
		write(t, f, reg.off, reg.n, ^before)
		if got := read(t, f, reg.off, reg.n); got != before {
			t.Errorf("read-only register %#x went from %#x to %#x", reg.off, before, got)
		}
	}
}

func TestPowerStateMovesBetweenD0AndD3Only(t *testing.T) {
	f, _ := newNIC(t)
	const at = capPM + pmcsr
	for _, c := range []struct{ write, want uint64 }{
		{3, pmcsrNoSoftReset | 3}, {1, pmcsrNoSoftReset | 3}, {0, pmcsrNoSoftReset},
		{2, pmcsrNoSoftReset}, {0xffff, pmcsrNoSoftReset | 3}, {0xfffc, pmcsrNoSoftReset},
	} {
		write(t, f, at, 2, c.write)
		if got := read(t, f, at, 2); got != c.want {
			t.Errorf("PMCSR = %#x after a write of %#x, want %#x", got, c.write, c.want)
		}
	}
}

func TestMSIXControlHoldsEnableAndFunctionMask(t *testing.T) {
	f, _ := newNIC(t)
	if got := read(t, f, capMSIX+msixTable, 8); got != 0x9000_0000_8000 {
		t.Errorf("table and pending-bit registers = %#x", got)
	}
	// The values are those QEMU sends: enable with all masked, then unmasked.
	for _, c := range []struct{ write, want uint64 }{
		{0xc013, 0xc07f}, {0x8013, 0x807f}, {0xffff, 0xc07f}, {0, 0x007f},
	} {
		write(t, f, capMSIX+msixControl, 2, c.write)
		if got := read(t, f, capMSIX+msixControl, 2); got != c.want {
			t.Errorf("message control = %#x after %#x, want %#x", got, c.write, c.want)
		}
	}
	// One byte at a time must do the same.
	write(t, f, capMSIX+msixControl+1, 1, 0xff)
	if got := read(t, f, capMSIX+msixControl, 2); got != 0xc07f {
		t.Errorf("message control = %#x after a write of its upper byte", got)
	}
}

func TestLinkAndDeviceRegistersArePlausible(t *testing.T) {
	f, _ := newNIC(t)
	if got := read(t, f, capExpress+expFlags, 2); got != 2 {
		t.Errorf("express flags %#x, want version 2 endpoint", got)
	}
	if got := read(t, f, capExpress+expDevCap, 4); got&(1<<28) == 0 {
		t.Errorf("DevCap %#x does not offer function-level reset", got)
	}
	status, capability := read(t, f, capExpress+expLnkSta, 2), read(t, f, capExpress+expLnkCap, 4)
	if status&0xf != 4 || status>>4&0x3f != 16 || capability&0x3ff != status&0x3ff {
		t.Errorf("link status %#x, capability %#x: want x16 at 16 GT/s in both", status, capability)
	}
	write(t, f, capExpress+expDevCtl, 2, 0x7fff)
	if got := read(t, f, capExpress+expDevCtl, 2); got != devCtlWritable {
		t.Errorf("DevCtl = %#x, want %#x", got, devCtlWritable)
	}
	write(t, f, capExpress+expLnkCtl, 2, 0x0040)
	write(t, f, capExpress+expDevCtl2, 2, 0x0010)
	if a, b := read(t, f, capExpress+expLnkCtl, 2), read(t, f, capExpress+expDevCtl2, 2); a != 0x40 || b != 0x10 {
		t.Errorf("LnkCtl %#x, DevCtl2 %#x did not hold what was written", a, b)
	}
}

// powered is a function that a guest has set up and is using.
func powered(t *testing.T) (*Function, *recorder, [ConfigSize]byte) {
	t.Helper()
	f, r := newNIC(t)
	var fresh [ConfigSize]byte
	if err := f.ReadConfig(0, fresh[:]); err != nil {
		t.Fatal(err)
	}
	write(t, f, 0x10, 8, 0xfe000000)
	write(t, f, 0x3c, 1, 11)
	write(t, f, capMSIX+msixControl, 2, 0x8000)
	write(t, f, regCommand, 2, 0x406)
	r.calls = nil
	return f, r, fresh
}

func TestResetsPutEveryRegisterBackAndStopTheDevice(t *testing.T) {
	flr := func(f *Function) error {
		return f.WriteConfig(capExpress+expDevCtl, []byte{0x00, 0x80})
	}
	for name, reset := range map[string]func(*Function) error{
		"function-level reset": flr,
		"function-level reset by a one-byte write": func(f *Function) error {
			return f.WriteConfig(capExpress+expDevCtl+1, []byte{0xa8})
		},
		"function-level reset inside a large write": func(f *Function) error {
			p := make([]byte, ConfigSize)
			p[capExpress+expDevCtl+1] = 0x80
			p[regCommand] = 0x06
			return f.WriteConfig(0, p)
		},
		"reset command": func(f *Function) error { return f.Reset(0) },
	} {
		f, r, fresh := powered(t)
		if err := reset(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := []string{"master off", "reset"}; !slices.Equal(r.calls, want) {
			t.Errorf("%s: the device was told %q, want %q", name, r.calls, want)
		}
		var now [ConfigSize]byte
		if err := f.ReadConfig(0, now[:]); err != nil {
			t.Fatal(err)
		}
		if now != fresh || f.BusMaster() {
			t.Errorf("%s: registers are not at their power-on values", name)
		}
	}
}

func TestWithoutFunctionLevelResetTheBitIsReserved(t *testing.T) {
	r := &recorder{}
	cfg := nicConfig(r)
	cfg.NoFLR = true
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if v := read(t, f, capExpress+expDevCap, 4); v&devCapFLR != 0 {
		t.Errorf("device capabilities %#x offer function-level reset", v)
	}
	write(t, f, regCommand, 2, 0x406)
	r.calls = nil
	write(t, f, capExpress+expDevCtl, 2, devCtlFLR)
	if len(r.calls) != 0 || !f.BusMaster() {
		t.Errorf("the device was told %q", r.calls)
	}
	if v := read(t, f, capExpress+expDevCtl, 2); v&devCtlFLR != 0 {
		t.Errorf("device control reads %#x", v)
	}
}

func TestOtherDevCtlBitsDoNotReset(t *testing.T) {
	f, r, _ := powered(t)
	write(t, f, capExpress+expDevCtl, 2, 0x7fff)
	write(t, f, capExpress+expDevCtl, 1, 0xff)
	write(t, f, capExpress+expDevSta, 2, 0xffff)
	if len(r.calls) != 0 {
		t.Errorf("the device was told %q", r.calls)
	}
}
