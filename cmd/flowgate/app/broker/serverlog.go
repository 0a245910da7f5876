package broker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// The embedded server logs an error for each message that a client may not
// publish, so that its clients could fill our log: so many complaints at once, then
// one a second, with the number of those left out.
const (
	complaintBurst = 20
	complaintRate  = 1 // a second
)

// serverLog sends the embedded server's log lines through ours. It implements
// server.Logger.
type serverLog struct {
	log *slog.Logger
	// plaintext drops the warning of passwords that are not hashed: without a
	// configuration file they are random ones, made at the start.
	plaintext bool
	// late begins what the server says of a reply to a delivery that came too late, or
	// after another: no fault, and nothing comes of it. Empty: nobody replies.
	late     string
	complain *rate.Limiter
	left     atomic.Int64
	// fatal has the first line with which the server would have ended the process,
	// until started is set.
	fatal   chan string
	started atomic.Bool
	// checking drops the complaints that CheckOnline provokes.
	checking atomic.Bool
}

func newServerLog(log *slog.Logger, dropPlaintext bool) *serverLog {
	return &serverLog{
		log: log, plaintext: dropPlaintext,
		complain: rate.NewLimiter(complaintRate, complaintBurst),
		fatal:    make(chan string, 1),
	}
}

// Noticef is the server's account of its ordinary work. Only changes of leaders
// and peers matter to who runs a gateway.
func (l *serverLog) Noticef(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if strings.HasPrefix(text, "JetStream cluster") {
		l.log.Info(text)
		return
	}
	l.log.Debug(text)
}

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) {
	if l.plaintext && strings.HasPrefix(format, "Plaintext passwords") {
		return
	}
	l.bounded(slog.LevelWarn, format, v)
}

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) {
	if l.late != "" {
		if text := fmt.Sprintf(format, v...); strings.Contains(text, l.late) {
			l.log.Debug(text)
			return
		}
	}
	l.bounded(slog.LevelError, format, v)
}

// Fatalf takes what would have ended a process of the server's own: Start returns
// it as an error, and afterwards it is logged.
func (l *serverLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if l.started.Load() {
		l.log.Error(text)
		return
	}
	select {
	case l.fatal <- text:
	default: // the first one tells why
	}
}

// Debugf and Tracef are never called: both are switched off.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (l *serverLog) Tracef(string, ...any) {}

func (l *serverLog) bounded(level slog.Level, format string, v []any) {
	text := fmt.Sprintf(format, v...)
	if l.checking.Load() && strings.HasPrefix(text, "Invalid JetStream request") {
		return
	}
	if !l.complain.Allow() {
		l.left.Add(1)
		return
	}
	log := l.log
	if n := l.left.Swap(0); n > 0 {
		log = log.With("lines_left_out", n)
	}
	log.Log(context.Background(), level, text)
}
