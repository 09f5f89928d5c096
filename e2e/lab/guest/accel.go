// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ernic-dev/ernic/e2e/guest/wire"
	"github.com/ernic-dev/ernic/e2e/lab/image"
)

// AccelVariable names the environment variable that overrides the choice.
const AccelVariable = "ERNIC_LAB_ACCEL"

// probePatience bounds the probe. A guest under KVM boots in about a second.
const probePatience = 20 * time.Second

// kvmFailure is what QEMU says when it cannot go on with a guest. It does not
// end then.
const kvmFailure = "KVM internal error"

// SelectAccel chooses KVM if the lab's own kernel boots with it, and TCG
// otherwise. Looking for /dev/kvm is not enough: on some machines the device is
// there and virtual machines can be made, and yet no kernel runs in them. The
// result is kept in the cache until the machine or the kernel changes.
func SelectAccel(ctx context.Context, a *image.Artifacts, p *image.Progress) (Accel, error) {
	switch v := Accel(os.Getenv(AccelVariable)); v {
	case "":
	case KVM, TCG:
		return v, nil
	default:
		return "", fmt.Errorf("%s=%q: want %s or %s", AccelVariable, v, KVM, TCG)
	}
	machine, err := machineID(a)
	if err != nil {
		return "", err
	}
	dir, err := image.Dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "accel.json")
	if f, ok := loadFinding(path, machine); ok {
		f.say(p)
		return f.Accel, nil
	}
	f := finding{Machine: machine, Accel: KVM, Reason: "the lab's kernel boots with it"}
	p.Sayf("trying whether KVM works here")
	if err := ProbeKVM(ctx, a); err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		f.Accel, f.Reason = TCG, err.Error()
	}
	f.say(p)
	return f.Accel, f.save(path)
}

// finding is the result of a probe.
type finding struct {
	Machine string `json:"machine"` // for which boot of which machine, kernel and QEMU
	Accel   Accel  `json:"accel"`
	Reason  string `json:"reason"`
}

func (f finding) say(p *image.Progress) {
	if f.Accel == KVM {
		p.Sayf("guests run under KVM: %s", f.Reason)
		return
	}
	p.Sayf("guests run under software emulation (TCG), which is slow: KVM does not work: %s", f.Reason)
}

func loadFinding(path, machine string) (f finding, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &f) != nil {
		return finding{}, false
	}
	return f, f.Machine == machine && (f.Accel == KVM || f.Accel == TCG)
}

func (f finding) save(path string) error {
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func machineID(a *image.Artifacts) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + " " + filepath.Base(a.Boot) + " " + a.Versions["qemu"], nil
}

// ProbeKVM boots the lab's kernel under KVM up to its first process. The error
// says in one line why that does not work.
func ProbeKVM(ctx context.Context, a *image.Artifacts) error {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return errors.New("this machine has no /dev/kvm")
	}
	cfg, err := Config{Artifacts: a, Dir: "/", Name: "probe", Accel: KVM, Memory: 512}.withDefaults()
	if err != nil {
		return err
	}
	q := cfg.machine("ernic.probe")
	q.add("-serial", "stdio")
	out := &watched{wanted: wire.ProbeMarker, found: make(chan struct{}), refused: kvmFailure, failed: make(chan struct{})}
	cmd := qemuCommand(a, q, out)
	if err := startQEMU(cmd); err != nil {
		return err
	}
	done := make(chan struct{})
	exit := errors.New("exit status 0")
	go func() {
		defer close(done)
		if err := cmd.Wait(); err != nil {
			exit = err
		}
	}()
	defer func() {
		// An error means that it has ended already.
		_ = cmd.Process.Kill()
		<-done
	}()
	timeout := time.NewTimer(probePatience)
	defer timeout.Stop()
	select {
	case <-out.found:
		return nil
	case <-out.failed:
		return errors.New("the processor cannot run the guest's kernel: QEMU reports \"" + kvmFailure + "\"")
	case <-done:
		if out.has(wire.ProbeMarker) {
			return nil
		}
		return fmt.Errorf("QEMU ended: %s (%w)", out.lastLine(), exit)
	case <-timeout.C:
		return fmt.Errorf("the guest's kernel does not come up within %v", probePatience)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watched is a writer that notices two phrases.
type watched struct {
	wanted, refused string
	found, failed   chan struct{} // closed when the phrase has come

	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	had := w.buf.String()
	w.buf.Write(b)
	now := w.buf.String()
	for _, x := range []struct {
		phrase string
		c      chan struct{}
	}{{w.wanted, w.found}, {w.refused, w.failed}} {
		if strings.Contains(now, x.phrase) && !strings.Contains(had, x.phrase) {
			close(x.c)
		}
	}
	return len(b), nil
}

func (w *watched) has(phrase string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.buf.String(), phrase)
}

func (w *watched) lastLine() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.TrimSpace(w.buf.String())
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
