// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// rejoinEvery is the time between two looks for members that fell silent.
	rejoinEvery = 5 * time.Second
	// Members that fell silent are looked for for this long, and so many of them at most.
	lookFor = time.Hour
	maxLost = 1024
	// atATime is how many are looked for at once.
	atATime = 3
)

// lostMember is where a member was that fell silent.
type lostMember struct {
	address string
	since   time.Time
}

// lose remembers a member that fell silent. Holds mu.
func (p *Pool) lose(instance [16]byte, n *memberlist.Node) {
	for other := range p.lost {
		if len(p.lost) < maxLost {
			break
		}
		delete(p.lost, other)
	}
	p.lost[instance] = lostMember{n.Address(), time.Now()}
}

// rejoin looks for members that fell silent: a pool that was split becomes one again, with or without the manager. Members
// themselves forget each other after a while.
func (p *Pool) rejoin(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, address := range p.missed() {
			// Who does not answer is asked again.
			if _, err := p.list.Load().Join([]string{address}); err != nil {
				p.cfg.Log.Debug().Str("part", "gossip").Str("address", address).Err(err).Msg("a member that fell silent does not answer")
			}
		}
	}
}

// missed returns the addresses of a few members that fell silent, by chance.
func (p *Pool) missed() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for instance, m := range p.lost {
		if time.Since(m.since) > lookFor {
			delete(p.lost, instance)
			continue
		}
		all = append(all, m.address)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), atATime)]
}
