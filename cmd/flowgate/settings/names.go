package settings

import "strings"

// Names are what a gateway's NAME makes of its streams, buckets and subjects.
type Names struct {
	Stream, DLQStream, LimitsBucket, StateBucket string
	// Subjects is the gateway's own space; the others lie in it.
	Subjects, Backlog, DLQ, Pressure string
	// Queue is the queue group and the micro service, Consumer the durable.
	Queue, Consumer string
}

// Names derives the names.
func (c Config) Names() Names {
	upper := strings.ToUpper(c.Name)
	return Names{
		Stream: upper, DLQStream: upper + "_DLQ",
		LimitsBucket: upper + "_LIMITS", StateBucket: upper + "_STATE",
		Subjects: c.Name, Backlog: c.Name + ".backlog", DLQ: c.Name + ".dlq", Pressure: c.Name + ".pressure",
		Queue: c.Name, Consumer: "shaper",
	}
}
