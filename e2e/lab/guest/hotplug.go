// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"path/filepath"
)

// HotPlug puts a card into the next of the guest's SparePorts while it runs. The
// socket must be in a directory that the guest's configuration names already, such
// as its Dir. The guest's kernel finds the card by itself, some time after.
func (g *Guest) HotPlug(ctx context.Context, d Device) error {
	q, err := g.QMP(ctx)
	if err != nil {
		return err
	}
	inside, err := g.inside(d.Socket)
	if err != nil {
		return err
	}
	g.mu.Lock()
	i := g.spares
	g.spares++
	g.mu.Unlock()
	if i >= g.cfg.SparePorts {
		return fmt.Errorf("guest %s: all %d spare ports are taken", g.cfg.Name, g.cfg.SparePorts)
	}
	args := map[string]any{
		"driver": "vfio-user-pci", "id": fmt.Sprintf("hot%d", i), "bus": sparePort(i),
		"socket": map[string]any{"type": "unix", "path": inside},
	}
	for k, v := range d.Properties {
		args[k] = v
	}
	if _, err := q.Execute(ctx, "device_add", args); err != nil {
		return fmt.Errorf("guest %s: %w", g.cfg.Name, err)
	}
	return nil
}

// inside is a host path as QEMU has it.
func (g *Guest) inside(path string) (string, error) {
	for _, m := range g.mounts {
		if m.host == filepath.Dir(path) {
			return filepath.Join(m.inside, filepath.Base(path)), nil
		}
	}
	return "", fmt.Errorf("guest %s: QEMU does not see %s", g.cfg.Name, path)
}
