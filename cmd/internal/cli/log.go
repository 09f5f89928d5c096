// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Log holds the flags of logging.
type Log struct {
	level  string
	format string
}

// AddFlags adds --log-level and --log-format.
func (l *Log) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&l.level, "log-level", "info", "least `level` to log: trace, debug, info, warn, error")
	f.StringVar(&l.format, "log-format", "auto", "`format` of the log: console, json, or auto (console on a terminal, json otherwise)")
}

// New returns the logger the flags ask for. It writes to out, which is a file
// in a program and may be anything in a test.
func (l *Log) New(out io.Writer) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(l.level)
	if err != nil || l.level == "" {
		return zerolog.Nop(), Usagef("--log-level %q is none of trace, debug, info, warn, error", l.level)
	}
	console := false
	switch l.format {
	case "console":
		console = true
	case "json":
	case "auto":
		f, ok := out.(*os.File)
		console = ok && term.IsTerminal(int(f.Fd()))
	default:
		return zerolog.Nop(), Usagef("--log-format %q is none of auto, console, json", l.format)
	}
	if console {
		out = zerolog.ConsoleWriter{Out: out, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger(), nil
}
