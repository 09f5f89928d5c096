// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/internal/testram"
	"github.com/ernic-dev/ernic/device/ionic/rdma/pbl"
)

const (
	page = testram.Page
	pd   = 7
	all  = abi.MRLocalWrite | abi.MRRemoteWrite | abi.MRRemoteRead | abi.MRRemoteAtomic | abi.MRBind
)

var user = Domain{QP: 20, PD: pd, Flags: abi.QPRemoteWrite | abi.QPRemoteRead | abi.QPRemoteAtomic}

type fixture struct {
	*Table
	ram    *testram.RAM
	budget *pbl.Budget
}

func newFixture(t testing.TB) *fixture {
	ram := testram.New(t, 4<<20)
	b := pbl.NewBudget(1 << 16)
	return &fixture{New(1<<16, ram.Space, b), ram, b}
}

func (f *fixture) create(t testing.TB, c abi.CreateMR) {
	t.Helper()
	if err := f.Create(&c); err != nil {
		t.Fatal(err)
	}
}

// regions of the matrix: the same three pages, described in every way.
func regions(f *fixture) map[string]abi.CreateMR {
	p := f.ram.Alloc(8 * page)
	return map[string]abi.CreateMR{
		"contiguous": {VA: 0x7000123, Length: 2 * page, PD: pd, MapCount: 1, DMA: p + 0x123},
		"pages": {
			VA: 0x7000123, Length: 2 * page, PD: pd, MapCount: 3,
			DMA: f.ram.Table(p+4*page, p+2*page, p+6*page), PageSizeLog2: 12,
		},
		"2 MiB pages": {
			VA: 3<<21 + 0x123, Length: 2 * page, PD: pd, MapCount: 2,
			DMA: f.ram.Table(testram.Base, testram.Base+1<<21), PageSizeLog2: 21,
		},
		"zero based": {VA: 0x7000123, Length: 2 * page, PD: pd, MapCount: 1, DMA: p + 0x123, Flags: abi.MRZeroBased},
	}
}

// Bounds hold to the byte, wherever the region starts.
func TestAccess_BoundsAreExact(t *testing.T) {
	f := newFixture(t)
	index := uint32(1)
	for name, c := range regions(f) {
		c.ID, c.Flags = index<<8|9, c.Flags|all
		index++
		f.create(t, c)
		first := c.VA
		if c.Flags&abi.MRZeroBased != 0 {
			first = 0
		}
		for _, a := range []struct {
			va, n uint64
			want  Fault
		}{
			{first, c.Length, OK},
			{first, 1, OK},
			{first + c.Length - 1, 1, OK},
			{first + c.Length, 0, OK},
			{first + c.Length, 1, OutOfRange},
			{first, c.Length + 1, OutOfRange},
			{first - 1, 1, OutOfRange},
			{first - 1, 2, OutOfRange},
			{first + c.Length - 1, math.MaxUint64, OutOfRange},
			{first + 1, math.MaxUint64 - first, OutOfRange},
			{math.MaxUint64, 1, OutOfRange},
			{math.MaxUint64, 2, OutOfRange},
			{0xdeadbeef, 0, OK},
		} {
			for _, r := range []Right{LocalRead, LocalWrite} {
				ref, got := f.Local(&user, c.ID, a.va, a.n, r)
				ref.Release()
				if got != a.want {
					t.Errorf("%s: local %d bytes at %#x: %v, want %v", name, a.n, a.va, got, a.want)
				}
			}
			for _, r := range []Right{RemoteRead, RemoteWrite, RemoteAtomic} {
				ref, got := f.Remote(&user, c.ID, a.va, a.n, r)
				ref.Release()
				if got != a.want {
					t.Errorf("%s: remote %d bytes at %#x: %v, want %v", name, a.n, a.va, got, a.want)
				}
			}
		}
	}
}

// Every form of page list finds the same bytes.
func TestAccess_ReachesTheRightBytes(t *testing.T) {
	f := newFixture(t)
	index := uint32(1)
	data := make([]byte, 2*page)
	for name, c := range regions(f) {
		c.ID, c.Flags = index<<8, c.Flags|all
		index++
		for i := range data {
			data[i] = byte(i>>3) ^ byte(index)
		}
		f.create(t, c)
		first := c.VA
		if c.Flags&abi.MRZeroBased != 0 {
			first = 0
		}
		w, fault := f.Remote(&user, c.ID, first, c.Length, RemoteWrite)
		if fault != OK || w.WriteAt(data, 0) != OK {
			t.Fatalf("%s: %v", name, fault)
		}
		w.Release()
		got := make([]byte, 3000)
		r, fault := f.Local(&user, c.ID, first+100, c.Length-100, LocalRead)
		if fault != OK || r.ReadAt(got, 2000) != OK || !bytes.Equal(got, data[2100:5100]) {
			t.Errorf("%s: wrong bytes, %v", name, fault)
		}
		if r.ReadAt(got, c.Length-100-2999) != OutOfRange || r.WriteAt(got, math.MaxUint64) != OutOfRange {
			t.Errorf("%s: a reference reaches beyond itself", name)
		}
		r.Release()
	}
}

// Rights, protection domains and keys are checked for each kind of access.
func TestAccess_RightsMatrix(t *testing.T) {
	f := newFixture(t)
	at := f.ram.Alloc(page)
	index := uint32(0)
	rights := []Right{LocalRead, LocalWrite, RemoteWrite, RemoteRead, RemoteAtomic}
	flagOf := []uint16{0, abi.MRLocalWrite, abi.MRRemoteWrite, abi.MRRemoteRead, abi.MRRemoteAtomic}
	ask := func(d *Domain, key uint32, r Right) Fault {
		var ref Ref
		var got Fault
		if r <= LocalWrite {
			ref, got = f.Local(d, key, at, 8, r)
		} else {
			ref, got = f.Remote(d, key, at, 8, r)
		}
		ref.Release()
		return got
	}
	for flags := range uint16(16) {
		index++
		key := index<<8 | 0x55
		f.create(t, abi.CreateMR{VA: at, Length: page, PD: pd, ID: key, MapCount: 1, DMA: at, Flags: flags})
		for i, r := range rights {
			want := OK
			if flags&flagOf[i] != flagOf[i] {
				want = NoRight
			}
			if got := ask(&user, key, r); got != want {
				t.Errorf("flags %#x, right %d: %v, want %v", flags, r, got, want)
			}
			if flags == 15 {
				if got := ask(&Domain{PD: pd + 1, QP: 20, Flags: user.Flags}, key, r); got != WrongPD {
					t.Errorf("right %d in another domain: %v", r, got)
				}
				if got := ask(&user, key^1, r); got != UnknownKey {
					t.Errorf("right %d with another key byte: %v", r, got)
				}
				if got := ask(&user, key+5000<<8, r); got != UnknownKey {
					t.Errorf("right %d with an unused index: %v", r, got)
				}
				if got := ask(&user, 0xffffffff, r); got != UnknownKey {
					t.Errorf("right %d with an index out of range: %v", r, got)
				}
			}
		}
	}
	for i, flag := range []uint16{abi.QPRemoteWrite, abi.QPRemoteRead, abi.QPRemoteAtomic} {
		d := user
		d.Flags &^= flag
		if got := ask(&d, 15<<8|0x55, rights[2+i]); got != NoRight {
			t.Errorf("right %d without the right of the QP: %v", rights[2+i], got)
		}
	}
}

// Key 0 is all of guest memory, for those who have the privilege.
func TestAccess_KeyZeroNeedsPrivilege(t *testing.T) {
	f := newFixture(t)
	at := f.ram.Alloc(page)
	f.ram.Write(at, []byte("kernel memory"))
	remote := user.Flags
	for _, c := range []struct {
		flags         uint16
		local, remote Fault
	}{
		{remote, NotPrivileged, NotPrivileged},
		{remote | abi.QPPrivileged, OK, NotPrivileged},
		{remote | abi.QPRemotePrivileged, NotPrivileged, OK},
		{abi.QPRemotePrivileged, NotPrivileged, NoRight},
	} {
		d := Domain{QP: 1, PD: pd, Flags: c.flags}
		ref, got := f.Local(&d, 0, at, 13, LocalRead)
		if got != c.local {
			t.Errorf("flags %#x: local %v, want %v", c.flags, got, c.local)
		}
		b := make([]byte, 13)
		if got == OK && (ref.ReadAt(b, 0) != OK || string(b) != "kernel memory") {
			t.Errorf("read %q", b)
		}
		ref.Release()
		ref, got = f.Remote(&d, 0, at, 8, RemoteWrite)
		ref.Release()
		if got != c.remote {
			t.Errorf("flags %#x: remote %v, want %v", c.flags, got, c.remote)
		}
	}
	d := Domain{Flags: abi.QPPrivileged}
	if _, got := f.Local(&d, 0, math.MaxUint64-3, 5, LocalRead); got != OutOfRange {
		t.Errorf("past the end of the address space: %v", got)
	}
	if _, got := f.Local(&d, 0x55, at, 5, LocalRead); got != UnknownKey {
		t.Errorf("index 0 with a key byte: %v", got)
	}
	ref, got := f.Local(&d, 0, 0x1000, 5, LocalRead)
	if got != OK || ref.ReadAt(make([]byte, 5), 0) != BadMemory || ref.Check(1) != BadMemory {
		t.Errorf("memory the guest does not have: %v", got)
	}
	ref.Release()
}

func TestCreate_RefusesBadRegions(t *testing.T) {
	f := newFixture(t)
	at := f.ram.Alloc(page)
	good := abi.CreateMR{VA: at, Length: page, PD: pd, ID: 5 << 8, MapCount: 1, DMA: at}
	f.create(t, good)
	for name, c := range map[string]struct {
		change func(c *abi.CreateMR)
		want   abi.AdminStatus
	}{
		"index in use":          {func(c *abi.CreateMR) { c.ID = 5<<8 | 1 }, abi.AdminBadIndex},
		"index 0":               {func(c *abi.CreateMR) { c.ID = 1 }, abi.AdminBadIndex},
		"index out of range":    {func(c *abi.CreateMR) { c.ID = 1 << 24 }, abi.AdminBadIndex},
		"range wraps":           {func(c *abi.CreateMR) { c.VA = math.MaxUint64 - page + 2 }, abi.AdminBadAttr},
		"page size not offered": {func(c *abi.CreateMR) { c.MapCount, c.PageSizeLog2 = 2, 13 }, abi.AdminBadAttr},
		"page size of nonsense": {func(c *abi.CreateMR) { c.MapCount, c.PageSizeLog2 = 2, 200 }, abi.AdminBadAttr},
		"table too short":       {func(c *abi.CreateMR) { c.MapCount, c.PageSizeLog2, c.Length = 2, 12, 3*page-10 }, abi.AdminBadAttr},
		"table not mapped":      {func(c *abi.CreateMR) { c.MapCount, c.PageSizeLog2, c.DMA = 2, 12, 0x1000 }, abi.AdminBadAttr},
		"no memory":             {func(c *abi.CreateMR) { c.MapCount = 0 }, abi.AdminBadAttr},
		"more pages than there are": {func(c *abi.CreateMR) {
			c.MapCount, c.PageSizeLog2, c.Length = math.MaxUint32, 12, 1<<40
		}, abi.AdminBadAttr},
		"length of everything": {func(c *abi.CreateMR) {
			c.VA, c.MapCount, c.PageSizeLog2, c.Length = 1, 2, 12, math.MaxUint64
		}, abi.AdminBadAttr},
	} {
		bad := good
		bad.ID = 6 << 8
		c.change(&bad)
		var r *abi.Refusal
		if err := f.Create(&bad); !errors.As(err, &r) || r.Status != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if f.Len() != 1 || f.budget.Left() != 1<<16 {
		t.Errorf("%d regions, %d entries left", f.Len(), f.budget.Left())
	}
}

func TestDestroy_ComparesOnlyTheIndex(t *testing.T) {
	f := newFixture(t)
	at := f.ram.Alloc(4 * page)
	f.create(t, abi.CreateMR{VA: at, Length: 3 * page, PD: pd, ID: 5<<8 | 1, MapCount: 3, DMA: f.ram.Table(at, at+2*page, at+page), PageSizeLog2: 12})
	if err := f.Destroy(5<<8 | 0x99); err != nil {
		t.Fatal(err)
	}
	var r *abi.Refusal
	if err := f.Destroy(5 << 8); !errors.As(err, &r) || r.Status != abi.AdminBadIndex {
		t.Errorf("destroyed twice: %v", err)
	}
	if f.budget.Left() != 1<<16 {
		t.Errorf("%d entries are lost", 1<<16-f.budget.Left())
	}
}

func (f *fixture) local(key uint32, va, n uint64) Fault {
	ref, got := f.Local(&user, key, va, n, LocalWrite)
	ref.Release()
	return got
}

func (f *fixture) remote(d *Domain, key uint32, va, n uint64, r Right) Fault {
	ref, got := f.Remote(d, key, va, n, r)
	ref.Release()
	return got
}

// The life of a fast-register region: keys rotate, pages change, nothing works
// while it is invalid.
func TestRegister_Cycle(t *testing.T) {
	f := newFixture(t)
	p := f.ram.Alloc(8 * page)
	const index = 9
	f.create(t, abi.CreateMR{PD: pd, ID: index<<8 | 1, Flags: abi.MRUserKey | abi.MRInvalidate})
	if got := f.local(index<<8|1, 0, 1); got != Invalid {
		t.Fatalf("new region: %v", got)
	}
	if got := f.Invalidate(&user, index<<8|1); got != Invalid {
		t.Fatalf("invalidating an invalid region: %v", got)
	}
	left := int64(0)
	for key := range uint8(10) {
		table := f.ram.Table(p+uint64(key%3)*page, p+5*page, p+3*page)
		reg := &Registration{
			Key: index<<8 | 0xee, NewKey: key, Access: abi.MRLocalWrite | abi.MRRemoteRead,
			VA: 0xcafe_0000_0000_0123 + uint64(key), Length: 2*page + 10, Offset: 0x123 + uint64(key), DMA: table, MapCount: 3, PageShift: 12,
		}
		if got := f.Register(&user, reg); got != OK {
			t.Fatalf("registration %d: %v", key, got)
		}
		if got := f.Register(&user, reg); got != WrongState {
			t.Fatalf("registered twice: %v", got)
		}
		f.ram.Write(table, make([]byte, 24))
		ref, got := f.Local(&user, index<<8|uint32(key), reg.VA, reg.Length, LocalWrite)
		if got != OK || ref.WriteAt([]byte{key, 1, 2}, 0) != OK {
			t.Fatalf("access after registration %d: %v", key, got)
		}
		ref.Release()
		if b := f.ram.Read(p+uint64(key%3)*page+reg.Offset, 1)[0]; b != key {
			t.Fatalf("first byte is elsewhere: %d", b)
		}
		if got := f.remote(&user, index<<8|uint32(key), reg.VA, 1, RemoteWrite); got != NoRight {
			t.Fatalf("right of an earlier registration: %v", got)
		}
		if got := f.local(index<<8|uint32(key)+1, reg.VA, 1); got != UnknownKey {
			t.Fatalf("next key works already: %v", got)
		}
		if got := f.Invalidate(&Domain{PD: pd + 1}, index<<8|uint32(key)); got != WrongPD {
			t.Fatalf("invalidated from another domain: %v", got)
		}
		if got := f.Invalidate(&user, index<<8|uint32(key)+1); got != UnknownKey {
			t.Fatalf("invalidated with another key: %v", got)
		}
		if got := f.Invalidate(&user, index<<8|uint32(key)); got != OK {
			t.Fatalf("invalidation %d: %v", key, got)
		}
		if got := f.local(index<<8|uint32(key), reg.VA, 1); got != Invalid {
			t.Fatalf("access after invalidation: %v", got)
		}
		if key > 0 && f.budget.Left() != left {
			t.Fatalf("registrations eat the budget: %d left, %d before", f.budget.Left(), left)
		}
		left = f.budget.Left()
	}
	if err := f.Destroy(index << 8); err != nil || f.budget.Left() != 1<<16 {
		t.Errorf("%v, %d entries left", err, f.budget.Left())
	}
}

func TestRegister_Refusals(t *testing.T) {
	f := newFixture(t)
	at := f.ram.Alloc(page)
	f.create(t, abi.CreateMR{VA: at, Length: page, PD: pd, ID: 1 << 8, MapCount: 1, DMA: at})
	f.create(t, abi.CreateMR{PD: pd, ID: 2 << 8, Flags: abi.MRUserKey | abi.MRInvalidate})
	f.create(t, abi.CreateMR{PD: pd, ID: 3 << 8, Flags: abi.MRUserKey | abi.MRWindow})
	good := Registration{Key: 2 << 8, NewKey: 1, Access: 7, VA: at, Length: 100, DMA: at, MapCount: 1, PageShift: 12}
	for name, c := range map[string]struct {
		change func(r *Registration)
		d      Domain
		want   Fault
	}{
		"unknown index":    {func(r *Registration) { r.Key = 99 << 8 }, user, UnknownKey},
		"ordinary region":  {func(r *Registration) { r.Key = 1 << 8 }, user, WrongKind},
		"window":           {func(r *Registration) { r.Key = 3 << 8 }, user, WrongKind},
		"other domain":     {func(*Registration) {}, Domain{PD: 1}, WrongPD},
		"type bits":        {func(r *Registration) { r.Access = abi.MRInvalidate }, user, NoRight},
		"no pages":         {func(r *Registration) { r.MapCount = 0 }, user, BadPages},
		"range wraps":      {func(r *Registration) { r.VA = math.MaxUint64 - 50 }, user, OutOfRange},
		"offset wraps":     {func(r *Registration) { r.MapCount, r.Offset = 2, math.MaxUint64-50 }, user, OutOfRange},
		"pages too few":    {func(r *Registration) { r.MapCount, r.Offset = 2, 2*page-50 }, user, BadPages},
		"table not mapped": {func(r *Registration) { r.MapCount, r.DMA = 2, 0x1000 }, user, BadPages},
		"page size":        {func(r *Registration) { r.MapCount, r.PageShift = 2, 3 }, user, BadPages},
	} {
		bad := good
		c.change(&bad)
		if got := f.Register(&c.d, &bad); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := f.Register(&user, &good); got != OK {
		t.Errorf("after all refusals: %v", got)
	}
	if got := f.Invalidate(&user, 1<<8); got != WrongKind {
		t.Errorf("an ordinary region was invalidated: %v", got)
	}
	if got := f.Invalidate(&user, 77<<8); got != UnknownKey {
		t.Errorf("an unknown key was invalidated: %v", got)
	}
}

func windows(t *testing.T) (f *fixture, at uint64) {
	f = newFixture(t)
	at = f.ram.Alloc(4 * page)
	f.create(t, abi.CreateMR{VA: at, Length: 4 * page, PD: pd, ID: 1<<8 | 1, MapCount: 1, DMA: at, Flags: all})
	f.create(t, abi.CreateMR{PD: pd, ID: 2<<8 | 2, Flags: abi.MRUserKey | abi.MRWindow})
	f.create(t, abi.CreateMR{PD: pd, ID: 3<<8 | 3, Flags: abi.MRUserKey | abi.MRWindow | abi.MRInvalidate})
	return f, at
}

func TestBind_Type1(t *testing.T) {
	f, at := windows(t)
	bind := &Binding{Key: 2<<8 | 0x77, NewKey: 5, Parent: 1<<8 | 1, Access: abi.MRRemoteWrite | abi.MRWindow, VA: at + page, Length: page}
	if got := f.remote(&user, 2<<8|2, at+page, 1, RemoteWrite); got != Invalid {
		t.Fatalf("unbound: %v", got)
	}
	if got := f.Bind(&user, bind); got != OK {
		t.Fatal(got)
	}
	other := user
	other.QP++
	for _, c := range []struct {
		key   uint32
		va, n uint64
		r     Right
		want  Fault
	}{
		{2<<8 | 5, at + page, page, RemoteWrite, OK},
		{2<<8 | 5, at + page - 1, 1, RemoteWrite, OutOfRange},
		{2<<8 | 5, at + page, page + 1, RemoteWrite, OutOfRange},
		{2<<8 | 5, at + page, 1, RemoteRead, NoRight},
		{2<<8 | 2, at + page, 1, RemoteWrite, UnknownKey},
	} {
		if got := f.remote(&other, c.key, c.va, c.n, c.r); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if got := f.local(2<<8|5, at+page, 1); got != WrongKind {
		t.Errorf("window as lkey: %v", got)
	}
	ref, _ := f.Remote(&user, 2<<8|5, at+page+7, 5, RemoteWrite)
	if ref.WriteAt([]byte("hello"), 0) != OK || string(f.ram.Read(at+page+7, 5)) != "hello" {
		t.Error("window shows other bytes")
	}
	ref.Release()

	// Binding again replaces, zero based.
	bind.NewKey, bind.Access, bind.VA = 6, abi.MRRemoteRead|abi.MRZeroBased, at+7
	if got := f.Bind(&user, bind); got != OK {
		t.Fatal(got)
	}
	if got := f.remote(&user, 2<<8|5, at+page, 1, RemoteWrite); got != UnknownKey {
		t.Errorf("old key after binding again: %v", got)
	}
	ref, got := f.Remote(&user, 2<<8|6, 0, page, RemoteRead)
	if got != OK {
		t.Errorf("zero based: %v", got)
	}
	b := make([]byte, 5)
	f.ram.Write(at+7+100, []byte("world"))
	if ref.ReadAt(b, 100) != OK || string(b) != "world" {
		t.Errorf("zero based window shows %q", b)
	}
	ref.Release()
	if got := f.Invalidate(&user, 2<<8|6); got != WrongKind {
		t.Errorf("type 1 invalidated: %v", got)
	}
	if got := f.Bind(&user, &Binding{Key: 2 << 8, NewKey: 99}); got != OK {
		t.Errorf("unbind: %v", got)
	}
	if got := f.remote(&user, 2<<8|6, 0, 1, RemoteRead); got != Invalid {
		t.Errorf("after unbinding: %v", got)
	}
}

func TestBind_Type2BelongsToItsQP(t *testing.T) {
	f, at := windows(t)
	bind := &Binding{Key: 3 << 8, NewKey: 8, Parent: 1<<8 | 1, Access: abi.MRRemoteRead, VA: at, Length: page}
	if got := f.Bind(&user, bind); got != OK {
		t.Fatal(got)
	}
	if got := f.Bind(&user, bind); got != WrongState {
		t.Errorf("bound twice: %v", got)
	}
	other := user
	other.QP++
	if got := f.remote(&other, 3<<8|8, at, 1, RemoteRead); got != WrongQP {
		t.Errorf("used by another QP: %v", got)
	}
	if got := f.remote(&user, 3<<8|8, at, 1, RemoteRead); got != OK {
		t.Errorf("used by its QP: %v", got)
	}
	if got := f.Invalidate(&other, 3<<8|8); got != WrongQP {
		t.Errorf("invalidated by another QP: %v", got)
	}
	if got := f.Invalidate(&user, 3<<8|8); got != OK {
		t.Errorf("invalidation: %v", got)
	}
	if got := f.Invalidate(&user, 3<<8|8); got != Invalid {
		t.Errorf("invalidated twice: %v", got)
	}
	bind.NewKey = 9
	if got := f.Bind(&other, bind); got != OK {
		t.Errorf("bound by another QP after invalidation: %v", got)
	}
	bind.Length = 0
	if f.Invalidate(&other, 3<<8|9); f.Bind(&other, bind) != OutOfRange {
		t.Error("a type 2 window was bound to nothing")
	}
}

func TestBind_Refusals(t *testing.T) {
	f, at := windows(t)
	f.create(t, abi.CreateMR{VA: at, Length: page, PD: pd, ID: 4 << 8, MapCount: 1, DMA: at, Flags: abi.MRLocalWrite})
	f.create(t, abi.CreateMR{VA: at, Length: page, PD: pd, ID: 5 << 8, MapCount: 1, DMA: at, Flags: abi.MRBind})
	f.create(t, abi.CreateMR{VA: at, Length: page, PD: 1, ID: 6 << 8, MapCount: 1, DMA: at, Flags: all})
	f.create(t, abi.CreateMR{PD: pd, ID: 7 << 8, Flags: abi.MRUserKey | abi.MRInvalidate})
	good := Binding{Key: 2 << 8, NewKey: 5, Parent: 1<<8 | 1, Access: abi.MRRemoteWrite, VA: at, Length: page}
	for name, c := range map[string]struct {
		change func(b *Binding)
		d      Domain
		want   Fault
	}{
		"unknown window":             {func(b *Binding) { b.Key = 99 << 8 }, user, UnknownKey},
		"region as window":           {func(b *Binding) { b.Key = 1 << 8 }, user, WrongKind},
		"other domain":               {func(*Binding) {}, Domain{PD: 1}, WrongPD},
		"unknown parent":             {func(b *Binding) { b.Parent = 99 << 8 }, user, UnknownKey},
		"parent key 0":               {func(b *Binding) { b.Parent = 0 }, Domain{PD: pd, Flags: abi.QPPrivileged}, UnknownKey},
		"old key of the parent":      {func(b *Binding) { b.Parent = 1<<8 | 2 }, user, UnknownKey},
		"parent in another domain":   {func(b *Binding) { b.Parent = 6 << 8 }, user, WrongPD},
		"parent without MW_BIND":     {func(b *Binding) { b.Parent = 4 << 8 }, user, NoRight},
		"write window on read-only":  {func(b *Binding) { b.Parent = 5 << 8 }, user, NoRight},
		"atomic window on read-only": {func(b *Binding) { b.Parent, b.Access = 5<<8, abi.MRRemoteAtomic }, user, NoRight},
		"invalid parent":             {func(b *Binding) { b.Parent = 7 << 8 }, user, Invalid},
		"window as parent":           {func(b *Binding) { b.Parent = 3 << 8 }, user, Invalid},
		"larger than the parent":     {func(b *Binding) { b.Length = 4*page + 1 }, user, OutOfRange},
		"before the parent":          {func(b *Binding) { b.VA-- }, user, OutOfRange},
		"range wraps":                {func(b *Binding) { b.VA, b.Length = math.MaxUint64, 2 }, user, OutOfRange},
	} {
		bad := good
		c.change(&bad)
		if got := f.Bind(&c.d, &bad); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	good.Parent, good.Access = 5<<8, abi.MRRemoteRead
	if got := f.Bind(&user, &good); got != OK {
		t.Errorf("read window on a read-only region: %v", got)
	}
}

// A window is worth nothing without the very registration it was bound to.
func TestBind_WindowDiesWithItsParent(t *testing.T) {
	f, at := windows(t)
	if err := f.Destroy(1 << 8); err != nil {
		t.Fatal(err)
	}
	f.create(t, abi.CreateMR{PD: pd, ID: 1 << 8, Flags: abi.MRUserKey | abi.MRInvalidate})
	reg := &Registration{Key: 1 << 8, NewKey: 1, Access: all, VA: at, Length: page, DMA: at, MapCount: 1}
	bind := &Binding{Key: 2 << 8, NewKey: 5, Parent: 1<<8 | 1, Access: abi.MRRemoteRead, VA: at, Length: page}
	if f.Register(&user, reg) != OK || f.Bind(&user, bind) != OK || f.remote(&user, 2<<8|5, at, 1, RemoteRead) != OK {
		t.Fatal("no window to begin with")
	}
	if f.Invalidate(&user, 1<<8|1) != OK || f.remote(&user, 2<<8|5, at, 1, RemoteRead) != Invalid {
		t.Error("the window outlived the invalidation of its region")
	}
	if f.Register(&user, reg) != OK || f.remote(&user, 2<<8|5, at, 1, RemoteRead) != Invalid {
		t.Error("the window came back with a new registration")
	}
	if f.Bind(&user, bind) != OK || f.Destroy(1<<8) != nil || f.remote(&user, 2<<8|5, at, 1, RemoteRead) != Invalid {
		t.Error("the window outlived its region")
	}
}

func TestAtomics_ActOnGuestMemory(t *testing.T) {
	f := newFixture(t)
	at := f.ram.Alloc(page)
	f.create(t, abi.CreateMR{VA: at, Length: page, PD: pd, ID: 1 << 8, MapCount: 1, DMA: at, Flags: all})
	f.ram.Store64(at+8, 100)
	ref, _ := f.Remote(&user, 1<<8, at+8, 8, RemoteAtomic)
	if old, got := ref.Add(5); old != 100 || got != OK || f.ram.Load64(at+8) != 105 {
		t.Errorf("add: %d, %v", old, got)
	}
	if old, got := ref.CompareAndSwap(104, 1); old != 105 || got != OK || f.ram.Load64(at+8) != 105 {
		t.Errorf("a swap that misses: %d, %v, memory holds %d", old, got, f.ram.Load64(at+8))
	}
	if old, got := ref.CompareAndSwap(105, 1); old != 105 || got != OK || f.ram.Load64(at+8) != 1 {
		t.Errorf("swap: %d, %v", old, got)
	}
	ref.Release()
	ref, _ = f.Remote(&user, 1<<8, at+12, 8, RemoteAtomic)
	if _, got := ref.Add(1); got != BadMemory {
		t.Errorf("misaligned: %v", got)
	}
	ref.Release()
	ref, _ = f.Remote(&user, 1<<8, at, 16, RemoteAtomic)
	if _, got := ref.Add(1); got != BadMemory {
		t.Errorf("16 bytes: %v", got)
	}
	ref.Release()
}

// A destroy returns only when nobody copies any more, and nobody starts after.
func TestDestroy_WaitsForAccesses(t *testing.T) {
	f := newFixture(t)
	at := f.ram.Alloc(page)
	f.create(t, abi.CreateMR{VA: at, Length: page, PD: pd, ID: 1 << 8, MapCount: 1, DMA: at, Flags: all})
	ref, got := f.Local(&user, 1<<8, at, 8, LocalWrite)
	if got != OK {
		t.Fatal(got)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f.Destroy(1 << 8); err != nil {
			t.Error(err)
		}
	}()
	for f.local(1<<8, at, 1) == OK {
		runtime.Gosched()
	}
	select {
	case <-done:
		t.Fatal("destroyed under an access")
	case <-time.After(10 * time.Millisecond):
	}
	ref.Release()
	<-done
}

// Accesses, registrations and invalidations by many at once: after an
// invalidation has returned no byte changes.
func TestInvalidate_StopsWritesAtOnce(t *testing.T) {
	f := newFixture(t)
	at := f.ram.Alloc(page)
	f.create(t, abi.CreateMR{PD: pd, ID: 1 << 8, Flags: abi.MRUserKey | abi.MRInvalidate})
	var stop atomic.Bool
	var written atomic.Int64
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			b := bytes.Repeat([]byte{byte(g + 1)}, 256)
			for key := uint32(0); !stop.Load(); key++ {
				ref, got := f.Remote(&user, 1<<8|key&3, at, 256, RemoteWrite)
				if got == OK && ref.WriteAt(b, 0) == OK {
					written.Add(1)
				}
				ref.Release()
			}
		}()
	}
	zero := make([]byte, 256)
	for i := range 100 {
		reg := &Registration{Key: 1 << 8, NewKey: uint8(i & 3), Access: abi.MRRemoteWrite, VA: at, Length: page, DMA: at, MapCount: 1}
		if got := f.Register(&user, reg); got != OK {
			t.Fatal(got)
		}
		for n := written.Load(); written.Load() == n; {
			runtime.Gosched()
		}
		if got := f.Invalidate(&user, 1<<8|uint32(i&3)); got != OK {
			t.Fatal(got)
		}
		f.ram.Write(at, zero)
		runtime.Gosched()
		if !bytes.Equal(f.ram.Read(at, 256), zero) {
			t.Fatal("written after the invalidation")
		}
	}
	stop.Store(true)
	wg.Wait()
}

func TestClear_DestroysEverything(t *testing.T) {
	f, at := windows(t)
	f.create(t, abi.CreateMR{VA: at, Length: 3 * page, PD: pd, ID: 4 << 8, MapCount: 3, DMA: f.ram.Table(at+page, at, at+2*page), PageSizeLog2: 12})
	f.Clear()
	if f.Len() != 0 || f.budget.Left() != 1<<16 || f.local(4<<8, at, 1) != UnknownKey {
		t.Errorf("%d left, %d entries", f.Len(), f.budget.Left())
	}
}

func BenchmarkLocal(b *testing.B) {
	f := newFixture(b)
	at := f.ram.Alloc(page)
	f.create(b, abi.CreateMR{VA: at, Length: page, PD: pd, ID: 1 << 8, MapCount: 1, DMA: at, Flags: all})
	b.ReportAllocs()
	for b.Loop() {
		ref, got := f.Local(&user, 1<<8, at+100, 64, LocalRead)
		if got != OK {
			b.Fatal(got)
		}
		ref.Release()
	}
}

func BenchmarkRemoteWindow(b *testing.B) {
	f := newFixture(b)
	at := f.ram.Alloc(page)
	f.create(b, abi.CreateMR{VA: at, Length: page, PD: pd, ID: 1 << 8, MapCount: 1, DMA: at, Flags: all})
	f.create(b, abi.CreateMR{PD: pd, ID: 2 << 8, Flags: abi.MRUserKey | abi.MRWindow})
	f.Bind(&user, &Binding{Key: 2 << 8, Parent: 1 << 8, Access: abi.MRRemoteRead, VA: at, Length: page})
	b.ReportAllocs()
	for b.Loop() {
		ref, got := f.Remote(&user, 2<<8, at+100, 64, RemoteRead)
		if got != OK {
			b.Fatal(got)
		}
		ref.Release()
	}
}

func BenchmarkRead64(b *testing.B) {
	f := newFixture(b)
	at := f.ram.Alloc(page)
	f.create(b, abi.CreateMR{VA: at, Length: page, PD: pd, ID: 1 << 8, MapCount: 1, DMA: at, Flags: all})
	var buf [64]byte
	b.ReportAllocs()
	for b.Loop() {
		ref, _ := f.Local(&user, 1<<8, at+100, 64, LocalRead)
		if ref.ReadAt(buf[:], 0) != OK {
			b.Fatal("read")
		}
		ref.Release()
	}
}
