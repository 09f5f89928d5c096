// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	fabricmesh "github.com/ernic-dev/ernic/fabric/mesh"
)

// A thousand strangers that are turned away cost a line a second, and no
// heartbeat.
func TestS4_RefusedConnectionsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := &mesh{worker: &Worker{config: Config{Log: zerolog.New(&log)}}}
		for range 10 {
			for range 1000 {
				m.linkEvent(fabricmesh.Event{Kind: fabricmesh.Refused, Address: "stranger:1", Err: errors.New("no hello")})
			}
			time.Sleep(refusalGap)
		}
		if n := strings.Count(log.String(), "\n"); n != 10 {
			t.Errorf("%d lines for 10,000 refusals in ten seconds:\n%s", n, log.String())
		}
		if !strings.Contains(log.String(), `"more":999`) || !strings.Contains(log.String(), "stranger:1") {
			t.Errorf("the log names neither the stranger nor how many there were:\n%s", log.String())
		}
	})
}
