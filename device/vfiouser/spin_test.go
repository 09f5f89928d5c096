// SPDX-License-Identifier: Apache-2.0

package vfiouser

import "testing"

func TestSpin_GoesOnWhileItPays(t *testing.T) {
	s := spin{tries: 50, paid: true}
	for i := range 1000 {
		if n := s.start(); n != 50 {
			t.Fatalf("after %d spins that caught a request: %d attempts", i, n)
		}
		s.end(true)
	}
}

func TestSpin_ParksAtOnceWhenItDoesNotPay(t *testing.T) {
	s := spin{tries: 50, paid: true}
	spins := 0
	for range 10 * (spinRetry + 1) {
		if s.start() > 1 {
			spins++
			s.end(false)
		}
	}
	if spins != 10 {
		t.Fatalf("%d spins in %d waits, want one in %d", spins, 10*(spinRetry+1), spinRetry+1)
	}
}

func TestSpin_ComesBackWhenASamplePays(t *testing.T) {
	s := spin{tries: 50, paid: true}
	s.start()
	s.end(false)
	for waits := 0; s.start() == 1; waits++ {
		if waits > spinRetry {
			t.Fatal("a spin that was in vain once is never tried again")
		}
	}
	s.end(true)
	if n := s.start(); n != 50 {
		t.Fatalf("%d attempts after a sample that paid", n)
	}
}

func TestSpin_NeverWithoutTries(t *testing.T) {
	for _, tries := range []int{-1, 0, 1} {
		s := spin{tries: tries, paid: true}
		for range 1000 {
			if n := s.start(); n > 1 {
				t.Fatalf("%d attempts with SpinTries %d", n, tries)
			}
		}
	}
}
