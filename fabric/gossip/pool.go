// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// Config says how a member takes part.
type Config struct {
	// Listen is the host:port for TCP and UDP; port 0 takes any.
	Listen string
	// Advertise is the host:port that others are told; empty: that of Listen.
	Advertise string
	// Key encrypts all that is said: 16, 24 or 32 bytes, or none.
	Key []byte
	// Instance names the process.
	Instance [16]byte
	Manager  bool
	// Changed is called, one call at a time, after members or records have changed.
	Changed func()
	Log     zerolog.Logger
	// Fast shortens all times for networks of microseconds, and for tests.
	Fast bool

	transport memberlist.Transport // nil: sockets; tests change it
}

// Pool is a member's view of all members.
type Pool struct {
	cfg   Config
	list  atomic.Pointer[memberlist.Memberlist] // another after Move
	down  atomic.Bool                           // list has ended: a Move has failed
	queue memberlist.TransmitLimitedQueue
	wake  chan struct{} // capacity 1
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu sync.Mutex // guards what follows
	// members are those that are alive, by instance.
	members map[[16]byte]*memberlist.Node
	// left are the instances that left in good order or are dead, since the process started.
	gone map[[16]byte]time.Time
	// lost are the addresses of members that are gone, which may be there all the same, on the other side of a split.
	lost map[[16]byte]lostMember
	// records are what workers say of themselves.
	records map[[16]byte]*ernicv1.GossipRecord
	own     *ernicv1.GossipRecord
	moves   int    // so often
	invalid uint64 // messages of no use
}

// ReadKey reads a key from a file: 32, 48 or 64 hexadecimal digits.
func ReadKey(file string) ([]byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("gossip key: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil || len(key) != 16 && len(key) != 24 && len(key) != 32 {
		return nil, fmt.Errorf("gossip key: %s does not hold 32, 48 or 64 hexadecimal digits and nothing else", file)
	}
	return key, nil
}

// Start makes the process a member of a pool of its own; Join joins it to another.
func Start(cfg Config) (*Pool, error) {
	p := &Pool{
		cfg: cfg, wake: make(chan struct{}, 1),
		members: make(map[[16]byte]*memberlist.Node), gone: make(map[[16]byte]time.Time), lost: make(map[[16]byte]lostMember),
		records: make(map[[16]byte]*ernicv1.GossipRecord),
	}
	p.queue.NumNodes = p.Len
	host, port, err := resolve(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("gossip listener: %w", err)
	}
	advertise, advertisePort := "", port
	if cfg.Advertise != "" {
		if advertise, advertisePort, err = resolve(cfg.Advertise); err != nil {
			return nil, fmt.Errorf("gossip address: %w", err)
		}
	}
	if err := p.begin(hex.EncodeToString(cfg.Instance[:]), host, port, advertise, advertisePort); err != nil {
		return nil, err
	}
	again := rejoinEvery
	if cfg.Fast {
		again = 500 * time.Millisecond
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.ended.Go(func() { p.tell(ctx) })
	p.ended.Go(func() { p.rejoin(ctx, again) })
	return p, nil
}

// begin makes the process a member under a name, at an address that others are told; an empty one is found out.
func (p *Pool) begin(name, host string, port int, advertise string, advertisePort int) error {
	c := memberlist.DefaultLANConfig()
	// News of this process goes to others at once; the rest may wait for a process that is awake once a second anyway.
	c.GossipInterval, c.ProbeInterval, c.PushPullInterval = time.Second, time.Second, 15*time.Second
	// A member that says nothing is gone after 3 to 6 seconds of suspicion, twice that among 100 members: that a living one
	// is taken for gone now and then costs nothing, since it takes a dead session as well to give a node up.
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = 3, 2
	if p.cfg.Fast {
		c.SuspicionMult, c.RetransmitMult = 3, 2
		c.GossipInterval, c.ProbeInterval, c.ProbeTimeout = 20*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
		c.PushPullInterval, c.TCPTimeout = time.Second, time.Second
	}
	c.Name = name
	c.BindAddr, c.BindPort, c.AdvertiseAddr, c.AdvertisePort = host, port, advertise, advertisePort
	c.SecretKey = p.cfg.Key
	c.Transport = p.cfg.transport
	c.Delegate, c.Events = p, p
	c.Logger = stdlog.New(logWriter{p.cfg.Log}, "", 0)
	p.queue.RetransmitMult = c.RetransmitMult
	list, err := memberlist.Create(c)
	if err != nil {
		return fmt.Errorf("gossip listener %s: %w", p.cfg.Listen, err)
	}
	p.list.Store(list)
	return nil
}

// splitAddress takes host:port apart; the host must be an address.
func splitAddress(s string) (string, int, error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: the port is no number", s)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return host, int(port), nil
}

// resolve returns an IP address and a port.
func resolve(s string) (string, int, error) {
	host, port, err := splitAddress(s)
	if err != nil {
		return "", 0, err
	}
	a, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return "", 0, err
	}
	return a.String(), port, nil
}

// Addr returns the host:port at which the pool can be joined.
func (p *Pool) Addr() string {
	n := p.list.Load().LocalNode()
	return net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))
}

// Join joins the pool of the member at an address. Members that are known already cost little.
func (p *Pool) Join(address string) error {
	if _, err := p.list.Load().Join([]string{address}); err != nil {
		return fmt.Errorf("gossip with %s: %w", address, err)
	}
	return nil
}

// Len returns how many members are alive, the own process included.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(1, len(p.members))
}

// Alive returns the instances of all members that are alive.
func (p *Pool) Alive() map[[16]byte]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	alive := make(map[[16]byte]struct{}, len(p.members))
	for instance := range p.members {
		alive[instance] = struct{}{}
	}
	return alive
}

// Gone returns the instances that were members and are no more.
func (p *Pool) Gone() map[[16]byte]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := make(map[[16]byte]struct{}, len(p.gone))
	for instance := range p.gone {
		gone[instance] = struct{}{}
	}
	return gone
}

// Records returns what the living members say of themselves, the own one left out.
func (p *Pool) Records() []*ernicv1.GossipRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*ernicv1.GossipRecord, 0, len(p.records))
	for instance, r := range p.records {
		if _, alive := p.members[instance]; alive && instance != p.cfg.Instance {
			list = append(list, r)
		}
	}
	return list
}

// errNoMember is why a process cannot be asked.
var errNoMember = errors.New("it is no member")

// Ask asks a member for a sign of life, and returns an error if none comes within half a second.
func (p *Pool) Ask(instance [16]byte) error {
	p.mu.Lock()
	n := p.members[instance]
	p.mu.Unlock()
	if n == nil {
		return errNoMember
	}
	_, err := p.list.Load().Ping(n.Name, &net.UDPAddr{IP: n.Addr, Port: int(n.Port)})
	return err
}

// Say replaces what the worker says of itself. Instance and version are filled in.
func (p *Pool) Say(r *ernicv1.GossipRecord) {
	r.Instance = p.cfg.Instance[:]
	p.mu.Lock()
	r.Version = 1
	if p.own != nil {
		r.Version = p.own.GetVersion()
		if proto.Equal(p.own, r) {
			p.mu.Unlock()
			return
		}
		r.Version++
	}
	p.own = r
	p.records[p.cfg.Instance] = r
	var others []*memberlist.Node
	for instance, n := range p.members {
		if len(others) < atOnce && instance != p.cfg.Instance {
			others = append(others, n)
		}
	}
	p.mu.Unlock()
	p.spread(r)
	if raw := encode(r); len(raw) <= maxBroadcast {
		for _, n := range others {
			// Who does not get it now hears it from others.
			_ = p.list.Load().SendBestEffort(n, raw)
		}
	}
}

// atOnce is how many members are told of a change directly.
const atOnce = 64

// Leave tells the others that the process ends in good order, within a time, and ends.
func (p *Pool) Leave(within time.Duration) error {
	var err error
	if !p.down.Load() {
		err = p.list.Load().Leave(within)
	}
	return errors.Join(err, p.Close())
}

// Close ends without a word.
func (p *Pool) Close() error {
	p.stop()
	err := p.list.Load().Shutdown()
	p.ended.Wait()
	return err
}

// signal has Changed called.
func (p *Pool) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Pool) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			if p.cfg.Changed != nil {
				p.cfg.Changed()
			}
		}
	}
}

// logWriter takes the lines of memberlist, whose level is a word in brackets.
type logWriter struct{ log zerolog.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	level := zerolog.DebugLevel
	if strings.HasPrefix(text, "[ERR]") || strings.HasPrefix(text, "[WARN]") {
		level = zerolog.InfoLevel
	}
	if _, rest, ok := strings.Cut(text, "] "); ok {
		text = strings.TrimPrefix(rest, "memberlist: ")
	}
	w.log.WithLevel(level).Str("part", "gossip").Msg(text)
	return len(line), nil
}
