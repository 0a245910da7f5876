package broker

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// LeaseHolder is who holds the lease: its value.
type LeaseHolder struct {
	V    int    `json:"v"`
	ID   string `json:"id"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// Since is when it took the lease, by its own clock.
	Since time.Time `json:"since"`
	// Embedded: the broker ran in the holder's process and for it alone, so that the
	// holder is gone if another process runs it now.
	Embedded bool `json:"embedded"`
	// Released: the holder gave it back, and delivers no more.
	Released bool `json:"released,omitempty"`
}

func (h LeaseHolder) String() string {
	return fmt.Sprintf("%s on host %s, process %d, since %s", h.ID, h.Host, h.PID, h.Since.Format(time.RFC3339))
}

// self is this process as a holder from now on.
func self(id string, embedded bool) LeaseHolder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return LeaseHolder{
		V: 1, ID: id, Host: host, PID: os.Getpid(),
		Since: time.Now().UTC().Truncate(time.Millisecond), Embedded: embedded,
	}
}

// readHolder reads what another process wrote; what it cannot read it shows as
// unknown.
func readHolder(value []byte) LeaseHolder {
	var h LeaseHolder
	if json.Unmarshal(value, &h) != nil || h.ID == "" {
		return LeaseHolder{ID: "unknown", Host: "unknown"}
	}
	return h
}
