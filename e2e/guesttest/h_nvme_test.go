// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
)

const nvmeGroup = "NVMe over RDMA"

// nvmeTarget exports a RAM disk of 128 MiB by the kernel's nvmet-rdma.
const nvmeTarget = `
modprobe -a nvmet nvmet-rdma
modprobe brd rd_nr=1 rd_size=131072
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/ernic
echo 1 >subsystems/ernic/attr_allow_any_host
mkdir subsystems/ernic/namespaces/1
echo -n /dev/ram0 >subsystems/ernic/namespaces/1/device_path
echo 1 >subsystems/ernic/namespaces/1/enable
mkdir ports/1
echo rdma >ports/1/addr_trtype
echo ipv4 >ports/1/addr_adrfam
echo %s >ports/1/addr_traddr
echo 4420 >ports/1/addr_trsvcid
ln -s "$PWD/subsystems/ernic" ports/1/subsystems/ernic
rdma resource show cm_id | grep -q LISTEN
`

const nvmeTargetEnd = `
cd /sys/kernel/config/nvmet
rm ports/1/subsystems/ernic
rmdir ports/1
echo 0 >subsystems/ernic/namespaces/1/enable
rmdir subsystems/ernic/namespaces/1 subsystems/ernic
modprobe -r nvmet-rdma nvmet brd
`

// How long the initiator waits for a target: one that is alive may be slow on a
// busy machine, and a controller that takes longer than -F to come back from a
// reset fails the I/O; one that is known to be dead is given up within seconds.
const (
	patient   = "-k 60 -c 1 -l 600"
	impatient = "-k 3 -c 1 -l 6 -F 3"
)

// nvmeConnect prints the name of the block device.
const nvmeConnect = `
nvme connect -t rdma -a %s -s 4420 -n ernic -i 4 -Q 64 %s >&2
for i in $(seq 100); do
  for s in /sys/class/nvme-subsystem/*; do
    [ "$(cat $s/subsysnqn 2>/dev/null)" = ernic ] || continue
    for d in $s/nvme*n1; do
      [ -b /dev/${d##*/} ] && { echo ${d##*/}; exit 0; }
    done
  done
  sleep 0.1
done
echo 'no block device' >&2
exit 1
`

// fioRun is one job of fio that reads back what it has written.
type fioRun struct {
	rw, bs string
	depth  int
	size   string
	tier   tier
}

var fioRuns = []fioRun{
	{"randwrite", "4k", 16, "8m", always},
	{"write", "64k", 8, "32m", longOnly},
	{"write", "1m", 4, "64m", always},
	{"randrw", "512", 16, "1m", longOnly},
	{"randrw", "16k", 32, "16m", longOnly},
	{"randwrite", "128k", 32, "64m", longOnly},
}

func (r fioRun) command(dev, more string) string {
	return fmt.Sprintf("fio --name=verify --filename=/dev/%s --rw=%s --bs=%s --iodepth=%d --size=%s --ioengine=libaio --direct=1 "+
		"--verify=crc32c --verify_fatal=1 --output-format=json %s", dev, r.rw, r.bs, r.depth, r.size, more)
}

// fioReport is what is read of fio's output.
type fioReport struct {
	Jobs []struct {
		Error       int
		Read, Write struct {
			IOBytes int64 `json:"io_bytes"`
			BW      int64 // KiB/s
		}
	}
}

func fioNote(t *testing.T, out string) string {
	t.Helper()
	var r fioReport
	// Remarks may stand before the report.
	if i := strings.Index(out, "{"); i < 0 || json.Unmarshal([]byte(out[i:]), &r) != nil || len(r.Jobs) != 1 {
		t.Fatalf("fio printed no report:\n%s", out)
	}
	j := r.Jobs[0]
	if j.Error != 0 || j.Read.IOBytes == 0 || j.Write.IOBytes == 0 {
		t.Errorf("fio reports %+v", j)
	}
	return fmt.Sprintf("%d MiB written at %d MiB/s, %d MiB read back", j.Write.IOBytes>>20, j.Write.BW>>10, j.Read.IOBytes>>20)
}

func TestNVMe(t *testing.T) {
	target, initiator := two.Nodes[0], two.Nodes[1]
	must(t, target.Guest, fmt.Sprintf(nvmeTarget, target.IP))
	must(t, initiator.Guest, "modprobe nvme-rdma; nvme discover -t rdma -a "+target.IP+" -s 4420 | grep -q 'subnqn: *ernic'")
	idle := resources(t)

	conform(t, nvmeGroup, "connect, fio with verify, disconnect", func(t *testing.T) string {
		dev := connectNVMe(t, target, initiator, patient)
		var notes []string
		for _, r := range fioRuns {
			if r.tier.runs() {
				notes = append(notes, r.rw+" "+r.bs+": "+fioNote(t, must(t, initiator.Guest, r.command(dev, ""))))
			}
		}
		disconnectNVMe(t, initiator)
		sameResources(t, idle)
		return strings.Join(notes, "; ")
	})
	conform(t, nvmeGroup, "connect and disconnect again and again", func(t *testing.T) string {
		n := 3
		if *long {
			n = 30
		}
		for range n {
			dev := connectNVMe(t, target, initiator, patient)
			must(t, initiator.Guest, "dd if=/dev/"+dev+" of=/dev/null bs=64k count=16 iflag=direct")
			disconnectNVMe(t, initiator)
		}
		sameResources(t, idle)
		return fmt.Sprintf("%d times, nothing left behind", n)
	})
	conform(t, nvmeGroup, "controller resets while fio runs", func(t *testing.T) string {
		dev := connectNVMe(t, target, initiator, patient)
		defer func() {
			if t.Failed() { // the next case connects too
				must(t, initiator.Guest, "nvme disconnect -n ernic")
			}
		}()
		n, size := 2, "16m"
		if *long {
			n, size = 10, "48m"
		}
		fio, err := initiator.Guest.Start(t.Context(), guest.Shell(fioRun{"randwrite", "4k", 16, size, always}.command(dev, "")))
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			awaitIO(t, initiator, dev)
			must(t, initiator.Guest, "nvme reset /dev/"+strings.TrimSuffix(dev, "n1"))
		}
		r, err := fio.Wait()
		if err != nil {
			t.Fatal(err)
		}
		disconnectNVMe(t, initiator)
		sameResources(t, idle)
		return fmt.Sprintf("%d resets; %s", n, fioNote(t, r.Stdout))
	})
	conform(t, nvmeGroup, "kill -9 of the target's worker", func(t *testing.T) string { return killTarget(t, target, initiator) })
	must(t, target.Guest, nvmeTargetEnd)
	must(t, initiator.Guest, "modprobe -r nvme-rdma")
}

// killTarget lets the target's worker crash under I/O. The initiator must get
// errors, soon, and come to no harm; a new guest on a new worker serves it.
func killTarget(t *testing.T, target, initiator *site.Node) string {
	dev := connectNVMe(t, target, initiator, impatient)
	fio, err := initiator.Guest.Start(t.Context(), guest.Shell(fioRun{"randwrite", "4k", 16, "64m", always}.command(dev, "--time_based --runtime=300")))
	if err != nil {
		t.Fatal(err)
	}
	awaitIO(t, initiator, dev)
	target.Worker.Kill()
	killed := time.Now()
	if !*long {
		// Otherwise the kernel asks a MAC that does not answer for more than a
		// minute before it gives up.
		must(t, initiator.Guest, "ip neigh flush dev eth0")
	}
	select {
	case <-fio.Done():
	case <-time.After(2 * time.Minute):
		t.Error("fio got no error within two minutes")
		must(t, initiator.Guest, "dmesg | tail -40; nvme list-subsys; cat /sys/class/nvme/*/state >&2")
	}
	failed := time.Since(killed)
	r, err := fio.Wait()
	var x *guest.ExitError
	if !errors.As(err, &x) {
		t.Errorf("fio ended without an error: %v", err)
	}
	if !strings.Contains(r.Stdout+r.Stderr, "Input/output error") {
		t.Errorf("fio met no I/O error:\n%.2000s%.2000s", r.Stdout, r.Stderr)
	}
	// The initiator lives and lets the controller go. An attempt to connect
	// again may be under way, which the kernel does not cut short.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := initiator.Guest.Run(ctx, guest.Shell("nvme disconnect -n ernic; ! nvme list-subsys | grep ernic")); err != nil {
		t.Fatal(err)
	}
	released := time.Since(killed)
	noHarm(t, initiator.Guest)

	target.Guest.Kill()
	target.Guest = nil
	ctx, cancel = context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := two.StartWorker(ctx, target); err != nil {
		t.Fatal(err)
	}
	if err := two.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	must(t, target.Guest, fmt.Sprintf(nvmeTarget, target.IP))
	dev = connectNVMe(t, target, initiator, patient)
	note := fioNote(t, must(t, initiator.Guest, fioRun{"randwrite", "4k", 16, "4m", always}.command(dev, "")))
	disconnectNVMe(t, initiator)
	noHarm(t, initiator.Guest)
	return fmt.Sprintf("I/O errors after %.0f s, controller gone after %.0f s; with a new guest on a new worker: %s",
		failed.Seconds(), released.Seconds(), note)
}

func connectNVMe(t *testing.T, target, initiator *site.Node, wait string) (dev string) {
	t.Helper()
	return strings.TrimSpace(must(t, initiator.Guest, fmt.Sprintf(nvmeConnect, target.IP, wait)))
}

func disconnectNVMe(t *testing.T, initiator *site.Node) {
	t.Helper()
	must(t, initiator.Guest, "nvme disconnect -n ernic | grep -q 'disconnected 1 controller'")
}

// awaitIO waits until reads or writes reach a block device.
func awaitIO(t *testing.T, n *site.Node, dev string) {
	t.Helper()
	must(t, n.Guest, fmt.Sprintf(`
before=$(awk '{print $1 + $5}' /sys/block/%[1]s/stat)
for i in $(seq 300); do
  [ $(awk '{print $1 + $5}' /sys/block/%[1]s/stat) -gt $((before + 50)) ] && exit 0
  sleep 0.1
done
echo 'no I/O' >&2
exit 1`, dev))
}

// sameResources waits until the RDMA objects of the guests are those of before.
func sameResources(t *testing.T, before string) {
	t.Helper()
	now := ""
	for range 50 {
		if now = resources(t); now == before {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Errorf("left behind: %s, before: %s", now, before)
}

// noHarm fails the test for what no kernel says however its peers die, and
// forgets the rest.
func noHarm(t *testing.T, g *guest.Guest) {
	t.Helper()
	bad, _ := guest.Complaints(must(t, g, "dmesg; dmesg -C"),
		[]string{"BUG:", "Oops", "WARNING:", "Call Trace", "hung task", "blocked for more than"}, nil)
	for _, line := range bad {
		t.Errorf("%s: the kernel says: %s", g.Name(), line)
	}
}
