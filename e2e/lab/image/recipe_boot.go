// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	modulePath = "github.com/ernic-dev/ernic"
	agentPath  = modulePath + "/e2e/guest/agent"
)

// moduleDir finds the checkout: the one that this program was built from, or
// the one that it runs in.
func moduleDir() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok {
		dir := filepath.Join(filepath.Dir(file), "..", "..", "..")
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", modulePath).Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout of %s (the guest lab works inside it): %w", modulePath, withStderr(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// compileAgent builds the agent and returns the program.
func compileAgent(ctx context.Context) ([]byte, error) {
	root, err := moduleDir()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ernic-agent-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "agent")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, agentPath)
	cmd.Dir = root
	// A static program that does not depend on how this process was built: no
	// race detector, no coverage.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest agent: %w\n%s", err, text)
	}
	return os.ReadFile(out)
}

// buildBoot packs the agent and the modules of the root disk, and unpacks the
// kernel: software emulation spends a quarter of a boot on unpacking it.
func buildBoot(agent []byte, tools, image string) func(*build) error {
	return func(b *build) error {
		files, err := initramfs(agent, filepath.Join(image, "modules"))
		if err != nil {
			return err
		}
		f, err := os.Create(filepath.Join(b.dir, "initramfs"))
		if err != nil {
			return err
		}
		w := bufio.NewWriter(f)
		if err := errors.Join(writeCPIO(w, files), w.Flush(), f.Close()); err != nil {
			return err
		}
		return b.unpackKernel(filepath.Join(tools, "tree"), filepath.Join(image, "vmlinuz"))
	}
}

// unpackKernel writes vmlinux. The tree has the program for it.
func (b *build) unpackKernel(tree, vmlinuz string) error {
	image, err := os.ReadFile(vmlinuz)
	if err != nil {
		return err
	}
	data, program, err := payload(image)
	if err != nil {
		return err
	}
	packed := filepath.Join(b.dir, "packed")
	defer func() { _ = os.Remove(packed) }()
	if err := os.WriteFile(packed, data, 0o644); err != nil { //nolint:gosec // a directory of this build
		return err
	}
	return b.isolated(nil, b.log, "sh", "-euxc", `chroot "$1" "$2" -d -c <"$3" >"$4"`, "sh", tree, program, packed, filepath.Join(b.dir, "vmlinux"))
}

func initramfs(agent []byte, modules string) ([]cpioFile, error) {
	files := []cpioFile{{path: "init", mode: 0o755, data: agent}, {path: "modules/", mode: 0o755}}
	order, err := os.ReadFile(filepath.Join(modules, "order"))
	if err != nil {
		return nil, err
	}
	files = append(files, cpioFile{path: "modules/order", mode: 0o644, data: order})
	for _, name := range bytes.Fields(order) {
		data, err := os.ReadFile(filepath.Join(modules, string(name))) //nolint:gosec // the image build wrote the list
		if err != nil {
			return nil, err
		}
		files = append(files, cpioFile{path: "modules/" + string(name), mode: 0o644, data: data})
	}
	return files, nil
}
