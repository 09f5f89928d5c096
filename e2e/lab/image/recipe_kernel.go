// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// findKernel asks apt for the newest kernel that the pin file allows.
func (r *recipe) findKernel(t *tree) (pkg, version string, err error) {
	names, err := t.output("apt-cache", "search", "--names-only", "^linux-image-")
	if err != nil {
		return "", "", err
	}
	var pkgs []string
	for line := range strings.Lines(names) {
		name, _, _ := strings.Cut(line, " ")
		pkgs = append(pkgs, name)
	}
	pkg, version, ok := newestMatch(regexp.MustCompile(r.pins.Kernel.Image), pkgs)
	if !ok {
		return "", "", fmt.Errorf("none of the %d kernels of the suite matches %s", len(pkgs), r.pins.Kernel.Image)
	}
	return pkg, version, nil
}

// unpackKernelScript unpacks the kernel package $1 of version $2 and the parts
// that Debian splits off, without the scripts of an installation: the lab makes
// its own initramfs. The modules are unpacked from xz, which costs a guest
// under emulation more than the disk space is worth.
const unpackKernelScript = `
cd /tmp
parts=$(apt-cache show "$1" | sed -n 's/^Depends: //p' | tr ',|' '\n\n' |
	sed -n "s/^ *\(linux-[a-z]*-$2\)\( .*\)\?$/\1/p" | sort -u)
apt-get download "$1" $parts
for deb in *.deb; do dpkg-deb -x "$deb" /; rm "$deb"; done
dir=/usr/lib/modules/$2
test -d "$dir/kernel"
for image in "/boot/vmlinuz-$2" "$dir/vmlinuz"; do
	if [ -e "$image" ]; then mv "$image" /tmp/vmlinuz; break; fi
done
test -e /tmp/vmlinuz
`

func (r *recipe) installKernel(t *tree, pkg, version string) error {
	if err := t.sh(unpackKernelScript, pkg, version); err != nil {
		return err
	}
	if err := os.Rename(t.path("tmp/vmlinuz"), filepath.Join(t.b.dir, "vmlinuz")); err != nil {
		return err
	}
	modules := t.path("usr/lib/modules", version)
	for _, d := range r.pins.Kernel.Drop {
		if err := os.RemoveAll(filepath.Join(modules, d)); err != nil {
			return err
		}
	}
	return t.sh(`find "/usr/lib/modules/$1/kernel" -name '*.ko.xz' -print0 | xargs -0 -r -n 100 -P "$(nproc)" xz -d`, version)
}

// buildModuleScript builds ionic_rdma, which Debian's kernel has not. $1 is the
// kernel version, $2 the source package's name.
const buildModuleScript = `
mkdir -p /src/kernel
cd /tmp
apt-get download "$2"
dpkg-deb --fsys-tarfile "$2"_*.deb | tar -x -O --wildcards '*/linux-source-*.tar.xz' |
	tar -x -J -C /src/kernel --strip-components=1 --wildcards \
	'*/drivers/infiniband/hw/ionic/*' '*/drivers/net/ethernet/pensando/ionic/*'
rm "$2"_*.deb
cd /src/kernel
for p in /src/patches/kernel/*.patch; do patch -p1 -F0 <"$p"; done
make -C "/usr/src/linux-headers-$1" -j "$(nproc)" M=/src/kernel/drivers/infiniband/hw/ionic \
	CONFIG_INFINIBAND_IONIC=m KCFLAGS=-I/src/kernel/drivers/net/ethernet/pensando/ionic modules
strip --strip-debug drivers/infiniband/hw/ionic/ionic_rdma.ko
`

func (r *recipe) buildModule(t *tree, version string) (string, error) {
	err := t.sh(buildModuleScript, version, fmt.Sprintf(r.pins.Kernel.Source, majorMinor(version)))
	return t.path("src/kernel/drivers/infiniband/hw/ionic/ionic_rdma.ko"), err
}
