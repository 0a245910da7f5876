package trial

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/flowgate/flowgate/loadtest/database"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/producers"
	"github.com/flowgate/flowgate/loadtest/scenario"
)

// ledger is the database as the gateway's process reaches it. It notes each delivery.
type ledger struct {
	database *database.Database
	record   *invariants.Record
	poison   float64
	noIDs    bool // a message is known by its payload
	url      string
	server   *http.Server
}

func newLedger(db *database.Database, record *invariants.Record, s *scenario.Scenario) (*ledger, error) {
	l := &ledger{database: db, record: record, poison: s.Poison, noIDs: s.NoIDs}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.url = "http://" + listener.Addr().String()
	l.server = &http.Server{Handler: l, ReadHeaderTimeout: time.Minute}
	go func() { _ = l.server.Serve(listener) }() // ends with close
	return l, nil
}

func (l *ledger) close() { _ = l.server.Close() }

// settle returns when all that was delivered is noted.
func (l *ledger) settle(ctx context.Context) error { return l.server.Shutdown(ctx) }

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	payload, err := io.ReadAll(r.Body)
	if err != nil {
		return // the gateway is gone
	}
	rows, err := l.rows(r.Header, string(payload))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	err = l.database.Do(r.Context())
	ended := time.Now().UnixNano()
	taken := make([]byte, len(rows))
	for i := range rows {
		a := &rows[i]
		bad := poisonous(a.ID, l.poison)
		a.Started, a.Ended, a.Done, taken[i] = started.UnixNano(), ended, err == nil && !bad, rowTaken
		if bad {
			taken[i] = rowBad
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	} else {
		_, _ = w.Write(taken)
	}
	// The gateway is told first: noting it may take a while when there is much.
	sent := http.NewResponseController(w).Flush()
	unheard := sent != nil || r.Context().Err() != nil
	for _, a := range rows {
		a.Unheard = unheard
		l.record.Arrive(a)
	}
}

// rows reads what a call delivers.
func (l *ledger) rows(h http.Header, payload string) (rows []invariants.Arrived, err error) {
	for i := range h[idHeader] {
		value := func(name string) string {
			if values := h[name]; i < len(values) {
				return values[i]
			}
			err = errors.Join(err, fmt.Errorf("message %d has no %s", i+1, name))
			return ""
		}
		number := func(name string) int64 {
			n, e := strconv.ParseInt(value(name), 10, 64)
			err = errors.Join(err, e)
			return n
		}
		a := invariants.Arrived{
			ID: value(idHeader), Tenant: value(tenantHeader), Seq: uint64(number(seqHeader)), Attempt: int(number(attemptHeader)),
			Process: int(number(processHeader)), Admitted: number(admittedHeader), Released: number(releasedHeader),
		}
		size := number(bytesHeader)
		if err != nil {
			return nil, err
		}
		own := strings.TrimRight(payload[:min(int(size), len(payload))], ".")
		payload = payload[min(int(size), len(payload)):]
		if l.noIDs {
			a.ID = own
		}
		a.Altered = own != a.ID
		rows = append(rows, a)
	}
	return rows, nil
}

// Poisoned says of a tenant's message, by its number among all, whether it is among that
// share of them that fails each time.
func Poisoned(share float64, tenant string, number int) bool {
	return poisonous(invariants.RowID(tenant, producers.ID(number)), share)
}

// poisonous says of an id whether it is among that share of them all.
func poisonous(id string, share float64) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return float64(h.Sum32()) < share*(1<<32)
}
