// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"io"
	"os"
	"os/exec"

	"github.com/ernic-dev/ernic/e2e/lab/child"
	"github.com/ernic-dev/ernic/e2e/lab/image"
)

// enterScript mounts what QEMU needs into its root directory $1 and becomes
// QEMU. Pairs of host directory and mount point follow, then "--" and the
// command. It runs in a mount name space of its own: other processes see none
// of it, and it all goes away with QEMU. Each step is an exec, so QEMU keeps
// the process id that the caller knows.
const enterScript = `set -e
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=0755 lab "$root/lab"
while [ "$1" != -- ]; do
	mkdir "$root$2"
	mount --bind "$1" "$root$2"
	shift 2
done
shift
exec chroot "$root" "$@"`

// qemuCommand prepares the process of a command line. QEMU's temporary files
// go to the host's directory for them.
func qemuCommand(a *image.Artifacts, q *command, out io.Writer) *exec.Cmd {
	args := []string{"--mount", "sh", "-c", enterScript, "sh", a.Tree}
	for _, m := range append(q.mounts, mount{os.TempDir(), "/lab/tmp"}) {
		args = append(args, m.host, m.inside)
	}
	args = append(append(args, "--"), q.args...)
	cmd := exec.Command("unshare", args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "TMPDIR=/lab/tmp", "HOME=/"}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd
}

func startQEMU(cmd *exec.Cmd) error { return child.Start(cmd) }
