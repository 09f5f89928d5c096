// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// MirrorVariable names the environment variable that overrides the mirror.
const MirrorVariable = "ERNIC_LAB_MIRROR"

// findMirror asks the machine's apt where it gets Debian from.
func findMirror(ctx context.Context, p *Progress) (string, error) {
	if m := os.Getenv(MirrorVariable); m != "" {
		return m, nil
	}
	ask := func() (string, error) {
		out, err := exec.CommandContext(ctx, "apt-get", "indextargets",
			"--format", "$(REPO_URI) $(LABEL)").Output()
		if err != nil {
			return "", fmt.Errorf("ask apt for its sources: %w", withStderr(err))
		}
		return mirrorFrom(string(out)), nil
	}
	m, err := ask()
	if err != nil || m != "" {
		return m, err
	}
	// Labels are known only after an update.
	err = attempt(ctx, p, func() error {
		out, updated := exec.CommandContext(ctx, "apt-get", "update").CombinedOutput()
		// One of many sources may be broken; what counts is what apt knows now.
		if m, err = ask(); err == nil && m == "" {
			err = fmt.Errorf("this machine's apt knows no Debian mirror: set %s to one", MirrorVariable)
		}
		if err != nil && updated != nil {
			err = fmt.Errorf("%w; apt-get update: %w\n%s", err, updated, out)
		}
		return err
	})
	return m, err
}

// mirrorFrom takes the first repository labelled Debian from lines of
// "URI label". Security and third-party repositories have other labels.
func mirrorFrom(targets string) string {
	for line := range strings.Lines(targets) {
		uri, label, _ := strings.Cut(strings.TrimSpace(line), " ")
		if label == "Debian" && (strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://")) {
			return strings.TrimSuffix(uri, "/")
		}
	}
	return ""
}

// aptProxies returns the machine's proxy settings in apt.conf syntax, and the
// same as environment variables for debootstrap.
func aptProxies(ctx context.Context) (conf string, env []string) {
	out, err := exec.CommandContext(ctx, "apt-config", "shell",
		"http_proxy", "Acquire::http::Proxy", "https_proxy", "Acquire::https::Proxy").Output()
	if err != nil {
		return "", nil // no apt, no setting
	}
	for line := range strings.Lines(string(out)) {
		name, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		v = strings.Trim(v, "'")
		if !ok || v == "" {
			continue
		}
		conf += fmt.Sprintf("Acquire::%s::Proxy %q;\n", strings.TrimSuffix(name, "_proxy"), v)
		if strings.Contains(v, "://") {
			env = append(env, name+"="+v)
		}
	}
	return conf, env
}

// withStderr adds what a command wrote to standard error.
func withStderr(err error) error {
	var x *exec.ExitError
	if errors.As(err, &x) && len(x.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(x.Stderr)))
	}
	return err
}
