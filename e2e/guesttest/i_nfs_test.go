// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"fmt"
	"testing"
)

const nfsGroup = "NFS over RDMA"

// nfsServer exports a file system in memory by the kernel's nfsd, on RDMA. New
// locks wait for the end of a grace period, which is 90 s unless it is told.
const nfsServer = `
modprobe -a nfsd rpcrdma
mkdir -p /srv/nfs /var/lib/nfs
mount -t tmpfs none /srv/nfs
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
echo '/srv/nfs *(rw,fsid=0,no_root_squash,insecure,no_subtree_check)' >/etc/exports
rpcbind
exportfs -ra
rpc.mountd
rpc.nfsd -N 3 -G 10 -L 10 --rdma=20049 4
grep -q 'rdma 20049' /proc/fs/nfsd/portlist
`

const nfsServerEnd = `
rpc.nfsd 0
pkill rpc.mountd
pkill rpcbind
for i in $(seq 100); do umount /srv/nfs && exit 0; sleep 0.2; done
exit 1
`

const nfsMount = `
mkdir -p /mnt/nfs
mount -t nfs4 -o proto=rdma,port=20049,vers=4.2,sec=sys,soft,timeo=300,retrans=2 %s:/ /mnt/nfs
grep ' /mnt/nfs ' /proc/mounts | grep -q proto=rdma
`

// nfsCopy writes a file, forgets it, reads it back and has the server read it.
const nfsCopy = `
head -c %[1]d /dev/urandom >/tmp/nfs-copy
cp /tmp/nfs-copy /mnt/nfs/copy
sync /mnt/nfs/copy
echo 3 >/proc/sys/vm/drop_caches
cmp /tmp/nfs-copy /mnt/nfs/copy
sha256sum </tmp/nfs-copy
rm /tmp/nfs-copy
`

func TestNFS(t *testing.T) {
	server, client := two.Nodes[0], two.Nodes[1]
	must(t, server.Guest, nfsServer)
	must(t, client.Guest, "modprobe rpcrdma")
	idle := resources(t)
	conform(t, nfsGroup, "copy, compare, fio with verify", func(t *testing.T) string {
		must(t, client.Guest, fmt.Sprintf(nfsMount, server.IP))
		size := 20<<20 + 13
		sum := must(t, client.Guest, fmt.Sprintf(nfsCopy, size))
		if got := must(t, server.Guest, "sha256sum </srv/nfs/copy; rm /srv/nfs/copy"); got != sum {
			t.Errorf("the server has %s, the client wrote %s", got, sum)
		}
		note := fioNote(t, must(t, client.Guest, "fio --name=verify --directory=/mnt/nfs --rw=randwrite --bs=32k --size=16m --iodepth=8 "+
			"--ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --output-format=json; rm -f /mnt/nfs/verify*"))
		must(t, client.Guest, "umount /mnt/nfs")
		return fmt.Sprintf("%d bytes copied; fio: %s", size, note)
	})
	conform(t, nfsGroup, "mount and unmount again and again", func(t *testing.T) string {
		n := 2
		if *long {
			n = 20
		}
		for range n {
			must(t, client.Guest, fmt.Sprintf(nfsMount, server.IP)+"ls /mnt/nfs; umount /mnt/nfs")
		}
		sameResources(t, idle)
		return fmt.Sprintf("%d times, nothing left behind", n)
	})
	noHarm(t, client.Guest)
	noHarm(t, server.Guest)
	must(t, server.Guest, nfsServerEnd)
}
