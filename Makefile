# The tests need Go alone. What needs PostgreSQL, Redis, RabbitMQ, Node, nats-py,
# Prometheus, Chromium, kubectl or systemd-analyze is skipped where there is none;
# FLOWGATE_TEST_REQUIRE=postgres,redis,rabbitmq,node,python,prometheus,chromium,kubectl,systemd
# makes absence a failure.
GO ?= go
RACE ?=
# Modules of their own, for the sake of the peers that they compare flowgate with.
PEERS = loadtest/limiters loadtest/pacers loadtest/peers
# What can be left out of the program: its tags, all at once.
WITHOUT = nokafka,noamqp,noredis,nootlp

.PHONY: test lint bench build screenshots

test:
	@for m in $(PEERS); do echo "$$m"; (cd $$m && $(GO) test $(RACE) -timeout 5m ./...) || exit 1; done
	$(GO) test $(RACE) -timeout 20m ./...
	$(GO) test -tags $(WITHOUT) -timeout 5m -run 'Absent|Config|URL' ./internal/consumers

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt: these files are not formatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags $(WITHOUT) ./internal/consumers ./cmd/flowgate
	$(GO) mod tidy -diff
	@for m in $(PEERS); do echo "$$m"; (cd $$m && $(GO) vet ./... && $(GO) mod tidy -diff) || exit 1; done

bench:
	$(GO) test -run '^$$' -bench . -benchtime 10x ./...
	$(GO) test -count=1 -run '^(TestManyTenants|TestViewersAreCheap)$$' ./cmd/flowgate/app
	$(GO) run ./loadtest -short
	@for m in $(PEERS); do echo "$$m"; (cd $$m && $(GO) run . -short) || exit 1; done

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o flowgate ./cmd/flowgate

# The pictures of the README: of a gateway under a surge, and of the database with and without one; takes five minutes and Chromium.
screenshots:
	FLOWGATE_TEST_REQUIRE=chromium $(GO) test ./cmd/flowgate/app -count=1 -timeout 10m -run '^TestScreenshots$$' -screenshots "$(CURDIR)/docs/images"
	dir=$$(mktemp -d) && $(GO) run ./loadtest run -report $$dir flash-crowd && chromium --headless --no-sandbox --hide-scrollbars --window-size=1280,660 \
		--screenshot="$(CURDIR)/docs/images/flash-crowd.png" file://$$dir/report.html && rm -r $$dir
