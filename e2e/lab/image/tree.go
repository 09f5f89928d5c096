// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/child"
)

// tree is a Debian root directory under construction.
type tree struct {
	b   *build
	dir string
}

// enterScript mounts the kernel's file systems into the tree $1 and runs the
// rest of its arguments there. It runs in a mount name space of its own, so
// nobody else sees the mounts and the kernel undoes them at the end.
const enterScript = `set -e
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec chroot "$root" "$@"`

// isolated runs argv in mount and process name spaces of its own: all that it
// started ends with it.
func (b *build) isolated(env []string, out io.Writer, argv ...string) error {
	args := append([]string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}, argv...)
	b.log.printf("+ %s", strings.Join(argv, " "))
	cmd := exec.CommandContext(b.ctx, "unshare", args...)
	cmd.Env = append(os.Environ(), b.env...)
	cmd.Env = append(cmd.Env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "HOME=/root", "TMPDIR=/tmp")
	cmd.Env = append(cmd.Env, env...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdout, cmd.Stderr = out, b.log
	err := child.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv[max(0, len(argv)-6):], " "), err)
	}
	return nil
}

// run executes argv inside the tree and logs its output.
func (t *tree) run(argv ...string) error {
	return t.b.isolated(nil, t.b.log, append([]string{"sh", "-c", enterScript, "sh", t.dir}, argv...)...)
}

// sh runs a script inside the tree. Arguments are $1 and on.
func (t *tree) sh(script string, args ...string) error {
	return t.run(append([]string{"sh", "-euxc", script, "sh"}, args...)...)
}

// output executes argv inside the tree and returns its standard output.
func (t *tree) output(argv ...string) (string, error) {
	var sb strings.Builder
	err := t.b.isolated(nil, io.MultiWriter(&sb, t.b.log), append([]string{"sh", "-c", enterScript, "sh", t.dir}, argv...)...)
	return sb.String(), err
}

func (t *tree) path(elem ...string) string { return filepath.Join(append([]string{t.dir}, elem...)...) }

func (t *tree) write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(t.path(name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(t.path(name), []byte(text), 0o644)
}

// labAptConf holds the settings of the lab's trees, and the machine's proxies.
const labAptConf = "etc/apt/apt.conf.d/99ernic-lab"

// prepareApt makes apt work in the tree.
func (t *tree) prepareApt(sources bool) error {
	conf := `APT::Install-Recommends "false";
Acquire::Retries "3";
Acquire::Languages "none";
// A mirror may lag behind so far that its Release file has run out.
Acquire::Check-Valid-Until "false";
Acquire::Check-Date "false";
APT::Sandbox::User "root";
Dpkg::Options { "--force-unsafe-io"; };
` + t.b.aptConf
	if err := t.write(labAptConf, conf); err != nil {
		return err
	}
	if sources {
		list, err := os.ReadFile(t.path("etc/apt/sources.list"))
		if err != nil {
			return err
		}
		if err := t.write("etc/apt/sources.list.d/ernic-lab-sources.list", strings.ReplaceAll(string(list), "deb http", "deb-src http")); err != nil {
			return err
		}
	}
	// The machine may know its mirror only from these files.
	for _, f := range []string{"etc/hosts", "etc/resolv.conf"} {
		b, err := os.ReadFile("/" + f)
		if err != nil {
			continue
		}
		if err := os.RemoveAll(t.path(f)); err != nil {
			return err
		}
		if err := t.write(f, string(b)); err != nil {
			return err
		}
	}
	return t.run("apt-get", "update")
}

func (t *tree) install(pkgs ...string) error {
	return t.run(append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, pkgs...)...)
}

// installedVersion is the version of an installed package, without Debian's
// epoch and revision.
func (t *tree) installedVersion(pkg string) (string, error) {
	out, err := t.output("dpkg-query", "-W", "-f", "${Version}", pkg)
	if err != nil {
		return "", err
	}
	return upstreamVersion(out), nil
}

func upstreamVersion(v string) string {
	if _, rest, ok := strings.Cut(v, ":"); ok {
		v = rest
	}
	if i := strings.LastIndex(v, "-"); i > 0 {
		v = v[:i]
	}
	return strings.TrimSuffix(v, "+ds")
}

// dropDownloads removes what apt and dpkg keep for later.
func (t *tree) dropDownloads() error {
	for _, glob := range []string{"var/cache/apt/archives/*.deb", "var/cache/apt/*.bin", "var/lib/apt/lists/*",
		"var/log/*.log", "var/log/apt", "tmp/*", labAptConf, "etc/apt/sources.list.d/ernic-lab-sources.list"} {
		found, err := filepath.Glob(t.path(glob))
		if err != nil {
			return err
		}
		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyOf makes a new tree in the build's directory from an existing one.
func (b *build) copyOf(src, name string) (*tree, error) {
	t := &tree{b: b, dir: filepath.Join(b.dir, name)}
	return t, b.isolated(nil, b.log, "cp", "-a", "--reflink=auto", src, t.dir)
}
