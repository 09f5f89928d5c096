// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeQEMU answers QMP commands with answer, which gets the request's name and
// id and returns lines to send. An empty answer closes the connection.
func fakeQEMU(t *testing.T, greeting string, answer func(command string, id int) string) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "q")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.Write([]byte(greeting))
		d := json.NewDecoder(bufio.NewReader(c))
		for {
			var r struct {
				Execute string
				ID      int
			}
			if d.Decode(&r) != nil {
				return
			}
			a := answer(r.Execute, r.ID)
			if a == "" {
				return
			}
			c.Write([]byte(a))
		}
	}()
	return socket
}

const greeting = `{"QMP": {"version": {}, "capabilities": []}}` + "\n"

func TestQMPMatchesAnswersAndKeepsEvents(t *testing.T) {
	socket := fakeQEMU(t, greeting, func(command string, id int) string {
		b, _ := json.Marshal(map[string]any{"return": map[string]string{"was": command}, "id": id})
		if command == "bad" {
			b, _ = json.Marshal(map[string]any{"error": map[string]string{"class": "GenericError", "desc": "no"}, "id": id})
		}
		if command == "end" {
			return ""
		}
		return `{"event": "RTC_CHANGE", "data": {}}` + string(b) + `{"return": {}, "id": 999}`
	})
	q, err := DialQMP(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if b, err := q.Execute(t.Context(), "stop", map[string]int{"x": 1}); err != nil || string(b) != `{"was":"stop"}` {
		t.Errorf("stop: %s, %v", b, err)
	}
	var refusal *QMPError
	if _, err := q.Execute(t.Context(), "bad", nil); !errors.As(err, &refusal) || refusal.Class != "GenericError" || !strings.Contains(err.Error(), "bad") {
		t.Errorf("bad: %v", err)
	}
	if ev := q.Events(); len(ev) < 2 || ev[0].Event != "RTC_CHANGE" {
		t.Errorf("events: %v", ev)
	}
	if _, err := q.Execute(t.Context(), "end", nil); !errors.Is(err, ErrGone) {
		t.Errorf("QEMU ends instead of answering: %v", err)
	}
	if _, err := q.Execute(t.Context(), "more", nil); !errors.Is(err, ErrGone) {
		t.Errorf("after its end: %v", err)
	}
}

func TestQMPThatIsNoneIsRefused(t *testing.T) {
	for name, greeting := range map[string]string{"other JSON": "{}\n", "no JSON": "SSH-2.0\n"} {
		t.Run(name, func(t *testing.T) {
			if _, err := DialQMP(t.Context(), fakeQEMU(t, greeting, nil)); err == nil || !strings.Contains(err.Error(), "greeting") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSilentQEMUEndsWithTheContext(t *testing.T) {
	for name, socket := range map[string]string{
		"no socket":   filepath.Join(t.TempDir(), "none"),
		"no greeting": fakeQEMU(t, "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := DialQMP(ctx, socket); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if _, err := Dial(ctx, socket); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the agent's line: got %v", err)
			}
		})
	}
}
