# The tests need Go alone. What needs PostgreSQL is skipped where there is none;
# FLOWGATE_TEST_REQUIRE=postgres makes its absence a failure.
GO ?= go
RACE ?=
# A module of its own, for the sake of the limiters it compares ours with.
LIMITERS = loadtest/limiters

.PHONY: test lint bench build

test:
	cd $(LIMITERS) && $(GO) test $(RACE) -timeout 5m ./...
	$(GO) test $(RACE) -timeout 20m ./...

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt: these files are not formatted"; exit 1; }
	$(GO) vet ./...
	$(GO) mod tidy -diff
	cd $(LIMITERS) && $(GO) vet ./... && $(GO) mod tidy -diff

bench:
	$(GO) test -run '^$$' -bench . -benchtime 10x ./...
	$(GO) run ./loadtest -short
	cd $(LIMITERS) && $(GO) run . -short

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o flowgate ./cmd/flowgate
