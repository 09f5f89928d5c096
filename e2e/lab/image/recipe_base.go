// SPDX-License-Identifier: Apache-2.0

package image

import "strings"

// buildBase bootstraps the minimal tree that the others start from.
func (r *recipe) buildBase(b *build) error {
	t := &tree{b: b, dir: b.dir + "/tree"}
	defer b.p.stage(b.log, "base: bootstrapping Debian %s", r.pins.Base.Suite)()
	if err := b.isolated(b.env, b.log, "debootstrap", "--variant=minbase",
		"--include="+strings.Join(r.pins.Base.Include, ","), r.pins.Base.Suite, t.dir, b.mirror); err != nil {
		return err
	}
	b.versions["suite"] = r.pins.Base.Suite
	return t.dropDownloads()
}
