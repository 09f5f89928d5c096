// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"os"
	"path/filepath"
)

// buildImage makes the guests' disk, and takes out of it what they boot from.
func (r *recipe) buildImage(base string) func(*build) error {
	return func(b *build) error {
		guest, err := b.copyOf(base+"/tree", "guest")
		if err != nil {
			return err
		}
		version, err := r.fillGuest(b, guest)
		if err != nil {
			return err
		}
		if err := r.fillFromSource(b, base, guest, version); err != nil {
			return err
		}
		if err := r.takeBootModules(b, guest, version); err != nil {
			return err
		}
		return r.writeDisk(b, guest)
	}
}

func (r *recipe) fillGuest(b *build, guest *tree) (kernel string, err error) {
	done := b.p.stage(b.log, "image: installing the guest's packages")
	defer func() { done() }()
	if err := guest.prepareApt(false); err != nil {
		return "", err
	}
	if err := guest.install(append([]string{"xz-utils"}, r.pins.Guest.Packages...)...); err != nil {
		return "", err
	}
	pkg, version, err := r.findKernel(guest)
	if err != nil {
		return "", err
	}
	b.versions["kernel"] = version
	for name, p := range map[string]string{"perftest": "perftest", "iperf3": "iperf3", "ethtool": "ethtool"} {
		if b.versions[name], err = guest.installedVersion(p); err != nil {
			return "", err
		}
	}
	done()
	done = b.p.stage(b.log, "image: unpacking kernel %s", version)
	return version, r.installKernel(guest, pkg, version)
}

// fillFromSource builds the module and the provider in a tree that is thrown
// away, and installs both in the guest.
func (r *recipe) fillFromSource(b *build, base string, guest *tree, version string) error {
	done := b.p.stage(b.log, "image: installing compilers")
	defer func() { done() }()
	t, err := b.copyOf(base+"/tree", "build")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(t.dir) }()
	if err := t.prepareApt(true); err != nil {
		return err
	}
	if err := t.install(append([]string{fmt.Sprintf(r.pins.Kernel.Headers, version)}, r.pins.Build.Packages...)...); err != nil {
		return err
	}
	for dir, names := range map[string][]string{"kernel": r.pins.Kernel.Patches, "provider": r.pins.Provider.Patches} {
		for i, n := range names {
			if err := t.write(fmt.Sprintf("src/patches/%s/%02d-%s", dir, i, n), string(r.patches[n])); err != nil {
				return err
			}
		}
	}
	done()
	done = b.p.stage(b.log, "image: building ionic_rdma.ko for %s", version)
	ko, err := r.buildModule(t, version)
	if err != nil {
		return err
	}
	updates := guest.path("usr/lib/modules", version, "updates")
	if err := os.MkdirAll(updates, 0o755); err != nil {
		return err
	}
	if err := os.Rename(ko, filepath.Join(updates, "ionic_rdma.ko")); err != nil {
		return err
	}
	if err := guest.run("depmod", "-a", version); err != nil {
		return err
	}
	done()
	done = b.p.stage(b.log, "image: building the patched libionic")
	return r.installProvider(t, guest)
}

func (r *recipe) takeBootModules(b *build, guest *tree, version string) error {
	dir := filepath.Join(b.dir, "modules")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	var order string
	for _, m := range r.pins.Kernel.InitramfsModules {
		data, err := os.ReadFile(guest.path("usr/lib/modules", version, m))
		if err != nil {
			return fmt.Errorf("module of the root disk: %w", err)
		}
		order += filepath.Base(m) + "\n"
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(m)), data, 0o644); err != nil { //nolint:gosec // names of the pin file
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "order"), []byte(order), 0o644)
}

func (r *recipe) writeDisk(b *build, guest *tree) error {
	defer b.p.stage(b.log, "image: writing the disk")()
	if err := guest.dropDownloads(); err != nil {
		return err
	}
	// The guest takes names from here, not from the machine that built it.
	if err := guest.write("etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"); err != nil {
		return err
	}
	if err := guest.write("etc/resolv.conf", ""); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(guest.dir) }()
	// No journal: the file is never written to, each guest writes to a layer
	// over it that is thrown away.
	return b.isolated(nil, b.log, "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0",
		"-d", guest.dir, filepath.Join(b.dir, "guest.img"), fmt.Sprintf("%dM", r.pins.Guest.Disk))
}
