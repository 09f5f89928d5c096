// SPDX-License-Identifier: Apache-2.0

package image

import "fmt"

// buildProviderScript builds libionic with the lab's patches from the upstream
// source that Debian's package $1 is made of.
const buildProviderScript = `
mkdir -p /src/provider
cd /tmp
apt-get source --tar-only --download-only "$1"
tar -x -f "$1"_*.orig.tar.* -C /src/provider --strip-components=1
cd /src/provider
for p in /src/patches/provider/*.patch; do patch -p1 -F0 <"$p"; done
mkdir build
cd build
cmake -GNinja -DNO_MAN_PAGES=1 -DNO_PYVERBS=1 -DENABLE_STATIC=0 -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	-DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu ..
ninja providers/ionic/all
mkdir out
# The name under which libibverbs looks for a provider carries the version of
# the interface between the two.
for so in lib/libionic-rdmav*.so; do cp -L "$so" out/; strip --strip-debug "out/${so##*/}"; done
test -e out/libionic-rdmav*.so
sed -n 's/^set(PACKAGE_VERSION "\(.*\)").*/\1/p' ../CMakeLists.txt >version
`

// installProvider builds the patched provider in t and puts it, with the
// Python suite of the same release, into the guest.
func (r *recipe) installProvider(t, guest *tree) error {
	if err := t.sh(buildProviderScript, r.pins.Provider.Source); err != nil {
		return err
	}
	built, err := t.output("cat", "/src/provider/build/version")
	if err != nil {
		return err
	}
	stock, err := guest.installedVersion("libibverbs1")
	if err != nil {
		return err
	}
	if compareVersions(built, stock) != 0 {
		return fmt.Errorf("the provider's source is release %s and the guest's libibverbs is %s: "+
			"the mirror is in the middle of a change, try again later", built, stock)
	}
	guest.b.versions["rdma-core"] = stock
	return t.b.isolated(nil, t.b.log, "sh", "-euxc", `
mkdir -p "$2/opt/ernic/lib"
cp "$1"/src/provider/build/out/*.so "$2/opt/ernic/lib/"
cp -r "$1/src/provider/tests" "$2/opt/ernic/rdma-core-tests"`, "sh", t.dir, guest.dir)
}
