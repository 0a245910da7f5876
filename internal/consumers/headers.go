package consumers

import (
	"strconv"
	"strings"
	"time"
)

// ownHeaders are what a delivery over HTTP or NATS carries beside the producer's own.
func ownHeaders(d Delivery) [6][2]string {
	return [...][2]string{
		{IDHeader, d.ID},
		{tenantHeader, d.Tenant},
		{topicHeader, d.Topic},
		{seqHeader, strconv.FormatUint(d.Seq, 10)},
		{attemptHeader, strconv.Itoa(d.Attempt)},
		{admittedHeader, d.AdmittedAt.UTC().Format(time.RFC3339Nano)},
	}
}

// plainName is a header's name as receivers tell them apart: in any case, and with _
// for -, since CGI and what came after it read Flowgate_Id as Flowgate-Id.
func plainName(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// isOwn reports whether a plain name is one of ownHeaders'. A producer may not speak
// for the gateway.
func isOwn(plain string) bool {
	switch plain {
	case "flowgate-id", "flowgate-tenant", "flowgate-topic", "flowgate-seq", "flowgate-attempt", "flowgate-admitted-at":
		return true
	}
	return false
}
