// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/child"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
)

// Prepare builds what is missing of the guest lab and returns what guests start
// from. The first call on a machine takes minutes and says so through p; later
// ones take about a second.
func Prepare(ctx context.Context, p *image.Progress) (*image.Artifacts, error) {
	return image.Prepare(ctx, p)
}

// Options describes a lab.
type Options struct {
	// Name starts the name of the run directory.
	Name string
	// FixedDir makes Name the whole name of the run directory, so that other
	// processes find it. Two labs of one name exclude each other.
	FixedDir bool
	// LogDir is where logs go, and stay. Without it they are in the run
	// directory and end with the lab.
	LogDir   string
	Progress *image.Progress
	// Network makes a network name space with Taps TAPs of MTU bytes (0 is
	// 1500). Programs run inside it.
	Network bool
	Taps    int
	MTU     int
}

// Lab is a set of programs, guests and the network between them.
type Lab struct {
	Artifacts *image.Artifacts
	Accel     guest.Accel
	Network   *Network // nil unless asked for

	logDir  string
	dir     *runDir
	release func() // lets the artifacts go

	closing  sync.Once
	closeErr error // valid after closing

	mu       sync.Mutex // guards what follows
	programs []*Process
	guests   []*guest.Guest
	closed   bool
}

// New prepares the guest lab if need be and opens a lab. The caller must close
// it.
func New(ctx context.Context, o Options) (*Lab, error) {
	if o.Name == "" {
		o.Name = "lab"
	}
	if strings.ContainsAny(o.Name, "/ ") || len(o.Name) > 31 {
		return nil, fmt.Errorf("lab %q: a name has at most 31 characters, no slash and no space", o.Name)
	}
	a, err := Prepare(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	accel, err := guest.SelectAccel(ctx, a, o.Progress)
	if err != nil {
		return nil, err
	}
	l := &Lab{Artifacts: a, Accel: accel}
	if l.release, err = a.Hold(); err != nil {
		return nil, err
	}
	if l.dir, err = newRunDir(RunRoot, o.Name, o.FixedDir); err != nil {
		l.release()
		return nil, fmt.Errorf("lab %s: %w", o.Name, err)
	}
	register(l)
	l.logDir = o.LogDir
	if l.logDir == "" {
		l.logDir = l.dir.path
	}
	err = os.MkdirAll(l.logDir, 0o755)
	if err == nil && (o.Network || o.Taps > 0) {
		l.Network, err = NewNetwork(ctx, o.Taps, o.MTU)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", o.Name, err), l.Close())
	}
	return l, nil
}

// Dir is the run directory: short, and gone when the lab is closed.
func (l *Lab) Dir() string { return l.dir.path }

// LogDir is where the logs are.
func (l *Lab) LogDir() string { return l.logDir }

// Socket is a path for a Unix socket in the run directory.
func (l *Lab) Socket(name string) string { return filepath.Join(l.dir.path, name+".sock") }

var errClosed = errors.New("the lab is closed")

// Start starts a program, inside the lab's network if there is one.
func (l *Lab) Start(p Program) (*Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("start %s: %w", p.Name, errClosed)
	}
	start := child.Start
	if l.Network != nil && !p.Outside {
		start = l.Network.Start
	}
	proc, err := startProgram(p, filepath.Join(l.logDir, p.Name+".log"), start)
	if err == nil {
		l.programs = append(l.programs, proc)
	}
	return proc, err
}

// Run runs a program on the host, inside the lab's network if there is one, and
// returns its standard output.
func (l *Lab) Run(ctx context.Context, argv ...string) (string, error) {
	if l.Network != nil {
		return l.Network.Run(ctx, argv...)
	}
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil {
		var x *exec.ExitError
		if errors.As(err, &x) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(x.Stderr)))
		}
		return string(out), fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return string(out), nil
}

// WaitSocket waits until a program listens at path. A program of the lab that
// ends meanwhile is the error.
func (l *Lab) WaitSocket(ctx context.Context, path string) error {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		if yes, err := l.listening(path); yes || err != nil {
			return err
		}
		l.mu.Lock()
		for _, p := range l.programs {
			if p.endedUnasked() {
				l.mu.Unlock()
				return fmt.Errorf("no socket at %s, and %s ended: %w%s", path, p.Name, p.exitStatus(), p.tail())
			}
		}
		l.mu.Unlock()
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("nobody listens at %s: %w", path, context.Cause(ctx))
		}
	}
}

// listening tells whether a program of the lab, or any other program outside of
// its network, listens at path. It reads the kernel's tables of Unix sockets
// instead of connecting: a vfio-user server would take a connection for its
// client. Each network name space has a table of its own.
func (l *Lab) listening(path string) (yes bool, err error) {
	look := func() error {
		b, err := os.ReadFile("/proc/thread-self/net/unix")
		yes = yes || listensAt(string(b), path)
		return err
	}
	if l.Network != nil {
		if err := l.Network.thread.Do(look); err != nil {
			return false, err
		}
	}
	return yes, look()
}

// listensAt looks for a socket at path that listens, in the format of
// /proc/net/unix: Num RefCount Protocol Flags Type St Inode Path. Flag 0x10000
// is set on a socket that listens.
func listensAt(table, path string) bool {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) == 8 && f[7] == path && f[3] == "00010000" {
			return true
		}
	}
	return false
}

// Boot starts guests at the same time and waits until all have booted. It fills
// in what the lab knows: artifacts, directory and accelerator.
func (l *Lab) Boot(ctx context.Context, cfgs ...guest.Config) ([]*guest.Guest, error) {
	var guests []*guest.Guest
	for _, c := range cfgs {
		g, err := l.startGuest(c)
		if err != nil {
			for _, g := range guests {
				g.Kill()
			}
			return nil, err
		}
		guests = append(guests, g)
	}
	errs := make([]error, len(guests))
	var wg sync.WaitGroup
	for i, g := range guests {
		wg.Go(func() { errs[i] = g.Ready(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, g := range guests {
			g.Kill()
		}
		return nil, err
	}
	return guests, nil
}

func (l *Lab) startGuest(c guest.Config) (*guest.Guest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("start guest %s: %w", c.Name, errClosed)
	}
	c.Artifacts, c.Dir = l.Artifacts, l.dir.path
	if c.Accel == "" {
		c.Accel = l.Accel
	}
	g, err := guest.Start(c)
	if err == nil {
		l.guests = append(l.guests, g)
	}
	return g, err
}

// Link returns the two ends of a plain virtio-net cable between two guests.
func (l *Lab) Link(name string) (a, b guest.Link) {
	s := l.Socket(name)
	return guest.Link{Socket: s, Listen: true, MAC: "52:54:00:00:00:01"}, guest.Link{Socket: s, MAC: "52:54:00:00:00:02"}
}

// Diagnose collects the logs of all guests and programs.
func (l *Lab) Diagnose(ctx context.Context) string {
	l.mu.Lock()
	guests, programs := l.guests, l.programs
	l.mu.Unlock()
	var s strings.Builder
	for _, g := range guests {
		s.WriteString(g.Diagnose(ctx))
	}
	for _, p := range programs {
		s.WriteString(p.tail())
	}
	return s.String()
}

// Close ends all that the lab has started and removes what it has made. Guests
// are killed: a test that wants an orderly end shuts them down before. A
// program that ended by itself, does not obey SIGTERM or ends with another
// status than 0 is an error. Each call returns when all is done, also while an
// interrupt closes the lab too.
func (l *Lab) Close() error {
	l.closing.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

func (l *Lab) close() error {
	l.mu.Lock()
	l.closed = true
	guests, programs := l.guests, l.programs
	l.mu.Unlock()
	defer unregister(l)

	for _, g := range guests {
		g.Kill()
	}
	var errs []error
	for i := len(programs) - 1; i >= 0; i-- {
		p := programs[i]
		if p.endedUnasked() {
			errs = append(errs, fmt.Errorf("%s ended by itself: %w%s", p.Name, p.exitStatus(), p.tail()))
			continue
		}
		p.mu.Lock()
		asked := p.stopped
		p.mu.Unlock()
		if err := p.Stop(context.Background()); err != nil && !asked {
			errs = append(errs, err)
		}
	}
	if l.Network != nil {
		l.Network.Close()
	}
	if l.logDir != l.dir.path {
		errs = append(errs, l.keepGuestLogs(guests))
	}
	l.release()
	return errors.Join(append(errs, l.dir.remove())...)
}

func (l *Lab) keepGuestLogs(guests []*guest.Guest) error {
	var errs []error
	for _, g := range guests {
		for _, path := range g.Files() {
			b, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(l.logDir, filepath.Base(path)), b, 0o644)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
