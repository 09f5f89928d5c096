// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// bootPatience bounds a boot when the caller's context does not: far above the
// ten seconds that it takes under emulation on a busy machine.
const bootPatience = 5 * time.Minute

// shutdownPatience is how long a guest may take to power off before it is
// killed, when the caller's context does not end earlier.
const shutdownPatience = time.Minute

// Guest is a running virtual machine.
type Guest struct {
	cfg    Config
	cmd    *exec.Cmd
	mounts []mount // host directories that QEMU sees
	log    *os.File
	born   time.Time

	done    chan struct{} // closed when QEMU has ended
	exitErr error         // valid after done: how QEMU ended

	mu     sync.Mutex // guards what follows
	client *Client
	qmp    *QMP
	killed bool
	spares int // root ports that HotPlug has used
}

// Start starts QEMU and returns at once. The caller must end the guest with
// Shutdown or Kill.
func Start(cfg Config) (*Guest, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	for i, d := range cfg.Devices {
		st, err := os.Stat(d.Socket)
		if err != nil {
			return nil, fmt.Errorf("guest %s: device %d: no vfio-user server, start the worker first: %w", cfg.Name, i, err)
		}
		if st.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("guest %s: device %d: %s is no socket", cfg.Name, i, d.Socket)
		}
	}
	q, err := cfg.commandLine()
	if err != nil {
		return nil, fmt.Errorf("guest %s: %w", cfg.Name, err)
	}
	log, err := os.Create(cfg.file("qemu.log"))
	if err != nil {
		return nil, fmt.Errorf("guest %s: %w", cfg.Name, err)
	}
	g := &Guest{cfg: cfg, cmd: qemuCommand(cfg.Artifacts, q, log), mounts: q.mounts, log: log, born: time.Now(), done: make(chan struct{})}
	if err := startQEMU(g.cmd); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("guest %s: start QEMU: %w", cfg.Name, err)
	}
	go func() {
		g.exitErr = g.cmd.Wait()
		_ = log.Close()
		close(g.done)
	}()
	return g, nil
}

// Boot starts a guest and waits until its agent answers. A guest that does not
// boot is killed.
func Boot(ctx context.Context, cfg Config) (*Guest, error) {
	g, err := Start(cfg)
	if err != nil {
		return nil, err
	}
	if err := g.Ready(ctx); err != nil {
		g.Kill()
		return nil, err
	}
	return g, nil
}

// Ready waits until the agent answers.
func (g *Guest) Ready(ctx context.Context) error {
	g.mu.Lock()
	ready := g.client != nil
	g.mu.Unlock()
	if ready {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootPatience, fmt.Errorf("no answer within %v", bootPatience))
	defer cancel()
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	go func() {
		select {
		case <-g.done:
			gone(fmt.Errorf("QEMU has ended: %w", g.exitStatus()))
		case <-ctx.Done():
		}
	}()
	c, err := Dial(ctx, g.cfg.file("agent0"))
	if err != nil {
		return fmt.Errorf("guest %s does not boot: %w%s", g.cfg.Name, err, g.logs())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.client = c
	return nil
}

func (g *Guest) exitStatus() error {
	if g.exitErr == nil {
		return errors.New("exit status 0")
	}
	return g.exitErr
}

// Name is the guest's name, which is its host name too.
func (g *Guest) Name() string { return g.cfg.Name }

// PID is the process id of QEMU.
func (g *Guest) PID() int { return g.cmd.Process.Pid }

// Done is closed when QEMU has ended.
func (g *Guest) Done() <-chan struct{} { return g.done }

// Agent is the line to the agent, or nil before the guest is ready.
func (g *Guest) Agent() *Client {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.client
}

func (g *Guest) agent() (*Client, error) {
	if c := g.Agent(); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("guest %s has not booted", g.cfg.Name)
}

// Run runs a command in the guest and waits for its end. A command that ends
// with another status than 0 gives an *ExitError besides its result.
func (g *Guest) Run(ctx context.Context, cmd Cmd) (Result, error) {
	c, err := g.Start(ctx, cmd)
	if err != nil {
		return Result{Code: -1}, err
	}
	r, err := c.Wait()
	if err != nil {
		err = fmt.Errorf("guest %s: %w", g.cfg.Name, err)
	}
	return r, err
}

// Start starts a command in the guest and returns at once.
func (g *Guest) Start(ctx context.Context, cmd Cmd) (*Command, error) {
	c, err := g.agent()
	if err != nil {
		return nil, err
	}
	s, err := c.Start(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("guest %s: %w", g.cfg.Name, err)
	}
	return s, nil
}

// Upload writes r to a file in the guest. Missing directories are made.
func (g *Guest) Upload(ctx context.Context, path string, mode os.FileMode, r io.Reader) error {
	c, err := g.agent()
	if err != nil {
		return err
	}
	if err := c.Upload(ctx, path, mode, r); err != nil {
		return fmt.Errorf("guest %s: %w", g.cfg.Name, err)
	}
	return nil
}

// QMP returns the connection to QEMU's control socket, made at the first call.
func (g *Guest) QMP(ctx context.Context) (*QMP, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.qmp == nil {
		q, err := DialQMP(ctx, g.cfg.file("qmp"))
		if err != nil {
			return nil, fmt.Errorf("guest %s: %w", g.cfg.Name, err)
		}
		g.qmp = q
	}
	return g.qmp, nil
}

// Shutdown powers the guest off and waits for the end of QEMU. A guest that
// does not obey in time is killed, which is an error.
func (g *Guest) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, shutdownPatience, fmt.Errorf("not off within %v", shutdownPatience))
	defer cancel()
	c, err := g.agent()
	if err == nil {
		err = c.PowerOff()
	}
	if err == nil {
		select {
		case <-g.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	g.mu.Lock()
	killed := g.killed
	g.mu.Unlock()
	select {
	case <-g.done:
		if g.exitErr != nil && !killed {
			return fmt.Errorf("guest %s: QEMU: %w%s", g.cfg.Name, g.exitErr, g.logs())
		}
		return nil
	default:
		g.Kill()
		return fmt.Errorf("guest %s had to be killed: %w", g.cfg.Name, err)
	}
}

// Kill ends QEMU with SIGKILL, as a crash would, and waits for its end.
func (g *Guest) Kill() {
	g.mu.Lock()
	g.killed = true
	g.mu.Unlock()
	select {
	case <-g.done:
	default:
		// An error means that it has ended in this moment.
		_ = g.cmd.Process.Signal(syscall.SIGKILL)
		<-g.done
	}
	if c := g.Agent(); c != nil {
		_ = c.Close()
	}
}

// Console is what the guest has written to its serial console.
func (g *Guest) Console() string { return readLog(g.cfg.file("console")) }

// QEMULog is what QEMU has written to its standard output and error. A guest
// whose devices behave has an empty one.
func (g *Guest) QEMULog() string { return readLog(g.cfg.file("qemu.log")) }

// Files are the paths of the guest's logs on the host.
func (g *Guest) Files() []string { return []string{g.cfg.file("console"), g.cfg.file("qemu.log")} }

// AgentSocket is the path of line n to the agent, with n below AgentPorts.
func (g *Guest) AgentSocket(n int) string { return g.cfg.file(fmt.Sprintf("agent%d", n)) }

func readLog(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// logs is the end of both logs, for error messages.
func (g *Guest) logs() string {
	var s string
	for _, l := range []struct{ name, text string }{{"QEMU", g.QEMULog()}, {"console", g.Console()}} {
		if t := strings.TrimSpace(l.text); t != "" {
			s += "\n" + l.name + " of " + g.cfg.Name + ":\n" + lastLines(t, 20)
		}
	}
	return s
}

// Diagnose collects what helps to understand a failure: the kernel's log, if
// the guest still answers, and both logs of the host side.
func (g *Guest) Diagnose(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s := g.logs()
	if c := g.Agent(); c != nil {
		if r, err := c.Run(ctx, Cmd{Argv: []string{"dmesg"}}); err == nil {
			s += "\ndmesg of " + g.cfg.Name + ":\n" + lastLines(strings.TrimSpace(r.Stdout), 60)
		}
	}
	return s
}
