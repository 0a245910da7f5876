package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// The server's codes for what an account or a server cannot give.
const (
	codeResources       = 10002 // account's resource limit
	codeNoPeers         = 10005 // too few servers for the replicas
	codeInsufficient    = 10023
	codeMaxConsumers    = 10026
	codeMaxStreams      = 10027
	codeMemory          = 10028
	codeStorage         = 10047 // account's or server's storage limit
	codeReplicas        = 10074 // replicas without a cluster
	codeBytesRequired   = 10113
	codeMaxStreamBytes  = 10122
	codeNoAccountLimits = 10120
)

// explain adds to an error of the server what is needed, what there is, and what
// to do.
func explain(ctx context.Context, js jetstream.JetStream, t Topology, err error) error {
	e, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return unavailable(err)
	}
	switch int(e.ErrorCode) {
	case codeReplicas, codeNoPeers:
		return fmt.Errorf("%w; FLOWGATE_NATS_REPLICAS is %d, and the NATS in use has not so many servers with JetStream", err, t.Replicas)
	case codeResources, codeInsufficient, codeMemory, codeStorage, codeMaxStreamBytes, codeBytesRequired, codeNoAccountLimits:
		return fmt.Errorf("%w; %s", err, room(ctx, js, t))
	case codeMaxStreams, codeMaxConsumers:
		return fmt.Errorf("%w; a gateway needs up to 4 streams (buckets are streams) and 1 consumer: raise the account's limits", err)
	}
	return unavailable(err)
}

// unavailable says what to do where there is no JetStream.
func unavailable(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%w; enable JetStream for the account that flowgate signs in to", err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return fmt.Errorf("%w; start nats-server with JetStream (-js), or check that flowgate's user may use $JS.API.>", err)
	}
	return err
}

// room compares what the streams set aside with what the account has.
func room(ctx context.Context, js jetstream.JetStream, t Topology) string {
	need := fmt.Sprintf("the streams set aside %d bytes (FLOWGATE_BACKPRESSURE_MAX_BYTES %d, FLOWGATE_DLQ_MAX_BYTES %d) on each of %d servers",
		t.Bytes(), t.MaxBytes, t.DLQMaxBytes, max(t.Replicas, 1))
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return need
	}
	tier := tierOf(info, t)
	if tier.Limits.MaxStore < 0 {
		return need + ", and the server has less than that left below its max_file_store; raise that or lower those"
	}
	return fmt.Sprintf("%s; the account has set aside %d of %d: raise its limit or lower those", need, tier.ReservedStore, tier.Limits.MaxStore)
}

// tierOf is what the account has for streams of that many replicas.
func tierOf(info *jetstream.AccountInfo, t Topology) jetstream.Tier {
	if tier, ok := info.Tiers[fmt.Sprintf("R%d", max(t.Replicas, 1))]; ok {
		return tier
	}
	return info.Tier
}
