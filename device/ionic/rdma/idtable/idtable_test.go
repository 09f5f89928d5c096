// SPDX-License-Identifier: Apache-2.0

package idtable

import (
	"sync"
	"testing"
)

func TestTable_KeepsWhatItIsTold(t *testing.T) {
	tab := New[int](1000)
	a, b := new(int), new(int)
	if tab.Get(999) != nil || tab.Get(1000) != nil || tab.Remove(5) != nil {
		t.Fatal("an empty table has objects")
	}
	if !tab.Add(999, a) || tab.Add(999, b) || tab.Add(1000, b) || tab.Len() != 1 {
		t.Fatal("Add takes what it must not, or refuses what it must take")
	}
	if old, ok := tab.Replace(999, b); old != a || !ok || tab.Len() != 1 || tab.Get(999) != b {
		t.Fatal("Replace lost somebody")
	}
	if _, ok := tab.Replace(1000, b); ok {
		t.Fatal("Replace took an id out of range")
	}
	if tab.RemoveIf(999, a) || tab.RemoveIf(3, nil) || !tab.RemoveIf(999, b) || tab.Len() != 0 {
		t.Fatal("RemoveIf removed the wrong object")
	}
	tab.Add(3, a)
	tab.Add(600, b)
	var ids []uint32
	tab.All(func(id uint32, _ *int) bool { ids = append(ids, id); return true })
	if len(ids) != 2 || ids[0] != 3 || ids[1] != 600 {
		t.Fatalf("All went over %v", ids)
	}
	if tab.Remove(3) != a || tab.Remove(3) != nil {
		t.Fatal("Remove returned the wrong object")
	}
	tab.Clear()
	if tab.Len() != 0 || tab.Get(600) != nil {
		t.Fatal("Clear left something")
	}
}

func TestTable_ReadersRunBesideChanges(t *testing.T) {
	tab := New[int](1 << 12)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			v := new(int)
			for i := range uint32(1 << 12) {
				id := (i*7 + uint32(g)*1000) % (1 << 12)
				if tab.Add(id, v) && !tab.RemoveIf(id, v) {
					t.Errorf("id %d was taken away", id)
				}
				tab.Get(i)
			}
		}()
	}
	wg.Wait()
	if tab.Len() != 0 {
		t.Fatalf("%d objects left", tab.Len())
	}
}
