// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
)

// traffic is what hosts of one network do with each other, in both directions:
// packets of every kind of size, fragments, IPv6, streams and datagrams.
func traffic(t *testing.T, s *site.Site) {
	t.Helper()
	for i, n := range s.Nodes {
		peer := s.Nodes[1-i]
		for _, size := range []int{0, 1, 56, 1471, 1472, 1473, 8000, 65000} {
			ping(t, n, peer.IP, fmt.Sprintf("-s %d", size))
		}
		ping(t, n, peer.IP, "-M do -s 1472")
		six := must(t, peer.Guest, "ip -6 -br addr show dev eth0 scope link | awk '{sub(\"/.*\",\"\",$3); print $3}'") + "%eth0"
		for _, size := range []int{0, 1452, 4000} {
			ping(t, n, six, fmt.Sprintf("-6 -s %d", size))
		}
		ping(t, n, "ff02::1%eth0", "-6 -L") // neighbours and multicast groups
	}
	for _, options := range []string{"", "-R", "-P 4", "-P 4 -R"} {
		again(t, func() error {
			if rate := iperf(t, s, options); rate < 5 {
				return fmt.Errorf("iperf3 %s: %.1f Mbit/s", options, rate)
			}
			return nil
		})
	}
	// Datagrams at a rate that everybody can keep: what is sent arrives.
	for _, options := range []string{"-u -b 10M", "-u -b 10M -R", "-u -b 3M -P 4", "-u -b 3M -P 4 -R"} {
		again(t, func() error { return datagrams(t, s, options) })
	}
}

// again repeats what a machine without time for its guests spoils now and then,
// and fails the test when it never goes well.
func again(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for range 5 {
		if err = f(); err == nil {
			return
		}
		t.Logf("again: %v", err)
	}
	t.Error(err)
}

// datagrams lets iperf3 send at a rate and wants nearly all to arrive.
func datagrams(t *testing.T, s *site.Site, options string) error {
	t.Helper()
	p := &site.Pair{Server: s.Nodes[0].Guest, Client: s.Nodes[1].Guest}
	port := p.Port()
	o, err := p.Run(t.Context(), port, fmt.Sprintf("iperf3 -s -1 -p %d", port),
		fmt.Sprintf("iperf3 -c %s -p %d -t 1 -l 1400 -J %s", s.Nodes[0].IP, port, options))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		End struct {
			Sum struct {
				Packets float64 `json:"packets"`
				Lost    float64 `json:"lost_packets"`
			} `json:"sum"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(o.Client.Stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.End.Sum.Packets < 250 || r.End.Sum.Lost > r.End.Sum.Packets/5 {
		return fmt.Errorf("iperf3 %s: %.0f of %.0f datagrams are lost", options, r.End.Sum.Lost, r.End.Sum.Packets)
	}
	return nil
}

// The address of the host on the bridge, for guests that ask it for theirs.
const dhcpHost = "192.168.200.1"

// dhcp lets each guest take an address from a server on the host's side of its TAP,
// which has never heard of it.
func dhcp(t *testing.T, s *site.Site) {
	t.Helper()
	host(t, s, "addr add %s/24 dev %s", dhcpHost, lab.Bridge)
	defer host(t, s, "addr del %s/24 dev %s", dhcpHost, lab.Bridge)
	server, err := s.Lab.Start(lab.Program{Name: "dnsmasq", Path: "/bin/sh", Args: []string{"-c",
		"PATH=$PATH:/usr/sbin:/sbin exec dnsmasq --no-daemon --conf-file=/dev/null --port=0 --interface=" + lab.Bridge +
			" --dhcp-range=192.168.200.100,192.168.200.150 --dhcp-authoritative --leasefile-ro"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := server.WaitLog(ctx, "DHCP, IP range"); err != nil {
		t.Fatal(err)
	}
	leases := make([]string, len(s.Nodes))
	for i, n := range s.Nodes {
		leases[i] = lease(t, n)
		mac := must(t, n.Guest, "cat /sys/class/net/eth0/address")
		if err := server.WaitLog(ctx, fmt.Sprintf("DHCPACK(%s) %s %s", lab.Bridge, leases[i], mac)); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range s.Nodes {
		ping(t, n, dhcpHost, "-I "+leases[i])
		ping(t, n, leases[1-i], "-I "+leases[i])
	}
	for i, n := range s.Nodes {
		must(t, n.Guest, "ip addr del %s/24 dev eth0", leases[i])
	}
}

// lease lets a guest ask for an address, and returns it when it has it.
func lease(t *testing.T, n *site.Node) string {
	t.Helper()
	out := must(t, n.Guest, `
cat >/tmp/lease <<'END'
#!/bin/sh
[ "$1" = bound ] && echo "bound $ip/$mask" && ip addr add $ip/$mask dev eth0 && echo $ip >/tmp/leased
exit 0
END
chmod +x /tmp/lease
udhcpc -i eth0 -n -q -f -t 20 -T 1 -s /tmp/lease 2>&1`)
	if !strings.Contains(out, "lease of 192.168.200.1") {
		t.Fatalf("DHCP gave no lease: %s", out)
	}
	return must(t, n.Guest, "cat /tmp/leased")
}

// secureShell sends a large file with ssh and compares what arrived.
func secureShell(t *testing.T, s *site.Site) {
	t.Helper()
	mib := 10
	if *long {
		mib = 100
	}
	server, client := s.Nodes[0], s.Nodes[1]
	key := must(t, client.Guest, "mkdir -p /root/.ssh; test -e /root/.ssh/id_ed25519 || ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519; cat /root/.ssh/id_ed25519.pub")
	must(t, server.Guest, `
mkdir -p /root/.ssh /run/sshd; chmod 700 /root/.ssh
echo '%s' >/root/.ssh/authorized_keys; chmod 600 /root/.ssh/authorized_keys
test -e /etc/ssh/ssh_host_ed25519_key || ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key`, key)
	sshd, err := server.Guest.Start(t.Context(), shell("exec /usr/sbin/sshd -D -h /etc/ssh/ssh_host_ed25519_key"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sshd.Signal(syscall.SIGTERM)
		_, _ = sshd.Wait()
	}()
	poll(t, server.Guest, "yes", "ss -Hltn 'sport = :22' | grep -q . && echo yes || echo no")
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r, err := client.Guest.Run(ctx, guest.Shellf(`
mountpoint -q /mnt || mount -t tmpfs -o size=300m none /mnt
head -c %dM /dev/urandom >/mnt/file
sha256sum </mnt/file
ssh -o StrictHostKeyChecking=no -o BatchMode=yes root@%s sha256sum </mnt/file
ssh -o StrictHostKeyChecking=no -o BatchMode=yes root@%[2]s 'head -c %[1]dM /dev/zero' | cmp -n %[3]d - /dev/zero
umount /mnt`, mib, server.IP, mib<<20))
	if err != nil {
		t.Fatal(err)
	}
	sums := strings.Fields(r.Stdout)
	if len(sums) != 4 || sums[0] != sums[2] || len(sums[0]) != 64 {
		t.Errorf("%d MiB by ssh: sent and received are %q", mib, r.Stdout)
	}
	t.Logf("%d MiB by ssh in each direction took %v", mib, time.Since(begun).Round(time.Second))
}
