// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// leaveTime is how long a member that moves may take to tell the others.
const leaveTime = 300 * time.Millisecond

// Move makes the process a member at another address of its host, which must listen on all of them. The others take it for
// the one it was: memberlist, where an address belongs to a name, is given another name.
//
//	name 0a17...      10.0.0.2:6321     leaves
//	name 0a17...-2    10.0.0.7:6321     joins; the instance in its metadata is the same
func (p *Pool) Move(host string) error {
	old := p.list.Load()
	if ip := net.ParseIP(host); ip == nil {
		return fmt.Errorf("gossip address %q is no IP address", host)
	}
	bind, _, err := resolve(p.cfg.Listen)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(bind); ip == nil || !ip.IsUnspecified() {
		return fmt.Errorf("gossip listener %s: it is on one address and cannot move to %s", p.cfg.Listen, host)
	}
	port := int(old.LocalNode().Port)
	p.mu.Lock()
	p.moves++
	name := fmt.Sprintf("%x-%d", p.cfg.Instance, p.moves+1)
	var others []string
	for instance, n := range p.members {
		if instance != p.cfg.Instance && len(others) < atOnce {
			others = append(others, net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port))))
		}
	}
	p.mu.Unlock()
	if !p.down.Swap(true) {
		// Who does not hear that it leaves finds its silence.
		_ = old.Leave(leaveTime)
		if err := old.Shutdown(); err != nil {
			return err
		}
	}
	if err := p.begin(name, bind, port, host, port); err != nil {
		return err
	}
	p.down.Store(false)
	p.mu.Lock()
	if p.own != nil {
		p.records[p.cfg.Instance] = p.own
	}
	p.mu.Unlock()
	if len(others) == 0 {
		return nil
	}
	if n, err := p.list.Load().Join(others); n == 0 {
		return errors.Join(fmt.Errorf("none of %d members answers at the new address %s", len(others), host), err)
	}
	return nil
}

// later reports whether a member has taken the first name after the second.
func later(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }
