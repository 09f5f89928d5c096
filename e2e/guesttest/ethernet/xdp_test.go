// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/ernic-dev/ernic/e2e/site"
)

// loadXDP loads three programs and leaves them in the BPF file system: what they do
// with a packet is their name. The last one sends it back to where it came from,
// which takes an exchange of the two addresses.
const loadXDP = `
mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf
cat >/tmp/xdp.py <<'END'
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
BPF, PROG_LOAD, OBJ_PIN, XDP = 321, 5, 6, 6
def insn(op, dst=0, src=0, off=0, imm=0): return struct.pack("<BBhi", op, dst | src << 4, off, imm)
def bpf(cmd, attr):
    b = ctypes.create_string_buffer(attr, 128)
    r = libc.syscall(BPF, cmd, b, 128)
    if r < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return r
def load(name, prog):
    code, licence, log = ctypes.create_string_buffer(prog), ctypes.create_string_buffer(b"GPL"), ctypes.create_string_buffer(1 << 16)
    fd = bpf(PROG_LOAD, struct.pack("<IIQQIIQII16sII", XDP, len(prog) // 8, ctypes.addressof(code), ctypes.addressof(licence),
        1, len(log), ctypes.addressof(log), 0, 0, name.encode(), 0, 37))
    path = ctypes.create_string_buffer(b"/sys/fs/bpf/" + name.encode())
    bpf(OBJ_PIN, struct.pack("<QI", ctypes.addressof(path), fd))
def verdict(n): return insn(0xb7, 0, imm=n) + insn(0x95)
load("xdp_pass", verdict(2))
load("xdp_drop", verdict(1))
body = insn(0x61, 2, 1, 0) + insn(0x61, 3, 1, 4)           # r2 = data, r3 = data_end
body += insn(0xbf, 4, 2) + insn(0x07, 4, imm=14)           # r4 = data + 14
swap = b""
for off in (0, 2, 4):
    swap += insn(0x69, 5, 2, off) + insn(0x69, 6, 2, off + 6) + insn(0x6b, 2, 6, off) + insn(0x6b, 2, 5, off + 6)
swap += verdict(3)
body += insn(0x2d, 4, 3, len(swap) // 8) + swap            # beyond the end: drop
load("xdp_back", body + verdict(1))
END
python3 /tmp/xdp.py
`

// Programs that run on each packet in the driver.
func xdp(t *testing.T, s *site.Site) {
	n, peer := s.Nodes[0], s.Nodes[1]
	must(t, n.Guest, "%s", loadXDP)
	use := func(name string) {
		t.Helper()
		must(t, n.Guest, "ip link set dev eth0 xdpdrv pinned /sys/fs/bpf/%s", name)
		if out := must(t, n.Guest, "ip -d link show dev eth0"); !strings.Contains(out, name) {
			t.Errorf("%s does not run in the driver:\n%s", name, out)
		}
		carrier(t, n, true)
	}
	count := func(name string) (v uint64) {
		t.Helper()
		if _, err := fmt.Sscan(must(t, n.Guest, "ethtool -S eth0 | awk '$1==\"%s:\"{print $2}'", name), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	use("xdp_pass")
	ping(t, peer, n.IP, "-s 1400")
	transfer(t, s, n.IP)
	if count("xdp_pass") < 20 {
		t.Errorf("xdp_pass counts %d", count("xdp_pass"))
	}
	must(t, n.Guest, "ip link set dev eth0 xdpdrv off")

	use("xdp_drop")
	if out := must(t, peer.Guest, "ping -q -i 0.05 -c 20 -W 1 %s || true", n.IP); !strings.Contains(out, "100% packet loss") {
		t.Errorf("a program that drops everything lets something through\n%s", out)
	}
	if count("xdp_drop") < 20 {
		t.Errorf("xdp_drop counts %d", count("xdp_drop"))
	}
	must(t, n.Guest, "ip link set dev eth0 xdpdrv off")

	// Echo requests come back to their sender as they were sent.
	use("xdp_back")
	must(t, peer.Guest, "ip neigh replace %s lladdr %s dev eth0 nud permanent", n.IP, n.MAC)
	echo, err := peer.Guest.Start(t.Context(), shell("exec ping -q -i 0.05 %s", n.IP))
	if err != nil {
		t.Fatal(err)
	}
	if out := must(t, peer.Guest, "timeout -s INT 60 tcpdump -n -i eth0 -Q in -c 10 'icmp[0] == 8' 2>&1 || true"); !strings.Contains(out, "10 packets captured") {
		t.Errorf("what the program sends does not arrive\n%s", out)
	}
	_ = echo.Signal(syscall.SIGINT)
	_, _ = echo.Wait()
	if count("xdp_tx") < 10 {
		t.Errorf("xdp_tx counts %d", count("xdp_tx"))
	}
	must(t, peer.Guest, "ip neigh del %s dev eth0", n.IP)
	must(t, n.Guest, "ip link set dev eth0 xdpdrv off; rm /sys/fs/bpf/xdp_*")
	carrier(t, n, true)
	must(t, peer.Guest, "ping -c 1 -w 60 %s", n.IP)
	ping(t, peer, n.IP, "-s 1400")
	iperf(t, s, "")
}
