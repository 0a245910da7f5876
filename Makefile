# The tests need Go alone. What needs PostgreSQL, Redis or RabbitMQ is skipped where
# there is none; FLOWGATE_TEST_REQUIRE=postgres,redis,rabbitmq makes absence a failure.
GO ?= go
RACE ?=
# A module of its own, for the sake of the limiters it compares ours with.
LIMITERS = loadtest/limiters
# What can be left out of the program: its tags, all at once.
WITHOUT = nokafka,noamqp,noredis

.PHONY: test lint bench build

test:
	cd $(LIMITERS) && $(GO) test $(RACE) -timeout 5m ./...
	$(GO) test $(RACE) -timeout 20m ./...
	$(GO) test -tags $(WITHOUT) -timeout 5m -run 'Absent|Config|URL' ./internal/consumers

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt: these files are not formatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags $(WITHOUT) ./internal/consumers ./cmd/flowgate
	$(GO) mod tidy -diff
	cd $(LIMITERS) && $(GO) vet ./... && $(GO) mod tidy -diff

bench:
	$(GO) test -run '^$$' -bench . -benchtime 10x ./...
	$(GO) run ./loadtest -short
	cd $(LIMITERS) && $(GO) run . -short

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o flowgate ./cmd/flowgate
