// SPDX-License-Identifier: Apache-2.0

package toolout

import (
	"slices"
	"testing"
)

const bwTable = ` #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 2          20               0.02               0.01   		     0.005456
 4          20               0.00               0.00   		     0.000421
 8388608    20               846.51             846.51 		     0.000106
---------------------------------------------------------------------------------------
`

func TestParseBandwidths_ReadsOneLineForEachSize(t *testing.T) {
	got, err := ParseBandwidths(bwTable)
	want := []Bandwidth{{2, 20, 0.02, 0.01, 0.005456}, {4, 20, 0, 0, 0.000421}, {8 << 20, 20, 846.51, 846.51, 0.000106}}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestParseLatencies_ReadsOneLineForEachSize(t *testing.T) {
	got, err := ParseLatencies(latOutput)
	if err != nil || len(got) != 1 || got[0].Bytes != 64 || got[0].P99 != 11043.54 {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestParseLatencies_ToleratesADeviationThatIsNoNumber(t *testing.T) {
	out := " t_typical[usec]\n 16 20 252.90 238065.67 1006.25 8837.11 -nan 238065.67 238065.67\n"
	got, err := ParseLatencies(out)
	if err != nil || len(got) != 1 || got[0].Typical != 1006.25 {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestParseTables_RefuseWhatIsCutOff(t *testing.T) {
	for _, out := range []string{"", " BW average\n", " BW average\n 2 20 0.1\n", " BW average\n 2 20 0.1 x 1\n"} {
		if got, err := ParseBandwidths(out); err == nil {
			t.Errorf("%q is read as %+v", out, got)
		}
	}
	for _, out := range []string{" t_typical\n---\n", " t_typical\n 2 20\n"} {
		if got, err := ParseLatencies(out); err == nil {
			t.Errorf("%q is read as %+v", out, got)
		}
	}
}
