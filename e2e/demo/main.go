// SPDX-License-Identifier: Apache-2.0

// Command demo boots two real guests on this machine, lets them talk RDMA
// through two workers and a manager, and prints what the stock tools measured. The
// Ethernet of the guests goes over the mesh, so nothing of the host is set up.
// With --compare it runs the same tools in the same kind of guests over
// Soft-RoCE and virtio-net and puts both side by side.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/image"
	"github.com/ernic-dev/ernic/e2e/site"
)

func main() {
	var bin, logs string
	var compare, asJSON bool
	var runs int
	c := &cobra.Command{
		Use:   "demo",
		Short: "Two guests talk RDMA through this fabric, on this machine",
		RunE: func(c *cobra.Command, _ []string) error {
			return demo(c.Context(), bin, logs, compare, asJSON, runs)
		},
	}
	c.Flags().StringVar(&bin, "bin", "bin", "`directory` with the built programs")
	c.Flags().StringVar(&logs, "logs", "", "`directory` to keep logs in")
	c.Flags().BoolVar(&compare, "compare", false, "measure Soft-RoCE over virtio-net as well")
	c.Flags().BoolVar(&asJSON, "json", false, "print the table as JSON")
	c.Flags().IntVar(&runs, "runs", 3, "`number` of runs of each test; the median counts")
	c.SilenceErrors, c.SilenceUsage = true, true
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := c.ExecuteContext(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted; guests, workers and manager are gone")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, bin, logs string, compare, asJSON bool, runs int) error {
	if runs < 1 {
		return fmt.Errorf("--runs %d is not positive", runs)
	}
	progress := image.NewProgress(os.Stderr)
	own, err := ours(ctx, bin, logs, progress, runs)
	if err != nil {
		return err
	}
	columns := []column{{"ernic", own}}
	if compare {
		rxe, err := softRoCE(ctx, logs, progress, runs)
		if err != nil {
			return err
		}
		columns = append(columns, column{"Soft-RoCE", rxe})
	}
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(columns)
	}
	printTable(os.Stdout, columns)
	return nil
}

// ours measures this fabric.
func ours(ctx context.Context, bin, logs string, progress *image.Progress, runs int) (results, error) {
	s, err := site.New(ctx, site.Options{Bin: bin, Name: "demo", Guests: 2, OverMesh: true, LogDir: logs, Progress: progress})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	progress.Sayf("manager and two workers are up; booting two guests (%s)", s.Lab.Accel)
	if err := s.Boot(ctx); err != nil {
		return nil, explained(ctx, s.Lab, err)
	}
	for _, n := range s.Nodes {
		out, err := n.Guest.Run(ctx, guestShell("lspci -nn -d 1dd8:; ibv_devices | tail -n +3"))
		if err != nil {
			return nil, err
		}
		progress.Sayf("%s sees\n%s", n.Name, out.Stdout)
	}
	r, err := measure(ctx, &suite{
		pair:   &site.Pair{Server: s.Nodes[0].Guest, Client: s.Nodes[1].Guest},
		device: "ionic_0", server: s.Nodes[0].IP, client: s.Nodes[1].IP, runs: runs, progress: progress,
	})
	if err != nil {
		return nil, explained(ctx, s.Lab, err)
	}
	for _, what := range []string{"nodes", "gids"} {
		out, err := s.Ernictl(ctx, what)
		if err != nil {
			return nil, err
		}
		fmt.Printf("$ ernictl %s\n%s\n", what, out)
	}
	return r, nil
}

// explained prints the logs of guests and programs, so that what failed is the last
// that is said. Of an interrupt there is nothing to explain.
func explained(ctx context.Context, l *lab.Lab, err error) error {
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, l.Diagnose(ctx))
	}
	return err
}
