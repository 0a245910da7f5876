package trial

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/flowgate/flowgate/loadtest/database"
	"github.com/flowgate/flowgate/loadtest/invariants"
)

// ledger is the database as the gateway's process reaches it. It notes each delivery.
type ledger struct {
	database *database.Database
	record   *invariants.Record
	poison   float64
	url      string
	server   *http.Server
}

func newLedger(db *database.Database, record *invariants.Record, poison float64) (*ledger, error) {
	l := &ledger{database: db, record: record, poison: poison}
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
	number := func(name string) int64 {
		n, e := strconv.ParseInt(r.Header.Get(name), 10, 64)
		err = errors.Join(err, e)
		return n
	}
	a := invariants.Arrived{
		ID: r.Header.Get(idHeader), Tenant: r.Header.Get(tenantHeader), Seq: uint64(number(seqHeader)), Attempt: int(number(attemptHeader)),
		Process: int(number(processHeader)), Admitted: number(admittedHeader), Released: number(releasedHeader), Started: started.UnixNano(),
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.Altered = strings.TrimRight(string(payload), ".") != a.ID
	err = l.database.Do(r.Context())
	bad := poisonous(a.ID, l.poison)
	a.Ended, a.Done = time.Now().UnixNano(), err == nil && !bad
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case bad:
		http.Error(w, "this row is not taken", http.StatusInternalServerError)
	}
	// The gateway is told first: noting it may take a while when there is much.
	sent := http.NewResponseController(w).Flush()
	a.Unheard = sent != nil || r.Context().Err() != nil
	l.record.Arrive(a)
}

// poisonous says of an id whether it is among that share of them all.
func poisonous(id string, share float64) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return float64(h.Sum32()) < share*(1<<32)
}
