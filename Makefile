# make demo   two guests talk RDMA through two workers and a manager, on this machine
# make test   lint, unit tests with -race, fuzz seeds, in-process and real-guest tests
# make help   everything else

include tools.mk

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/ernic-dev/ernic/cmd/internal/cli.version=$(VERSION)

# All packages but those that boot real guests or need hosts of their own.
UNIT_PKGS = $(shell go list ./... | grep -v -e /e2e/guesttest -e /e2e/lab/selftest -e /e2e/faults -e /e2e/standby)

# Says at the end of a test run once more what failed and why.
SUMMARY := 2>&1 | go run ./e2e/failures

# Namespaces, TAPs and the guest lab need root; another user goes through sudo.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo -E)
say-sudo = $(if $(SUDO),@echo "$(1) needs root: running it with sudo")

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | sort | expand -t 16

.PHONY: build
build: ## build the programs into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/ernic-manager ./cmd/ernic-worker ./cmd/ernictl

.PHONY: demo
demo: build lab ## two real guests ping and run RDMA through this fabric (COMPARE=1: Soft-RoCE beside it)
	go build -trimpath -o bin/ernic-demo ./e2e/demo
	$(call say-sudo,the demonstration)
	$(SUDO) bin/ernic-demo --bin bin $(if $(COMPARE),--compare)

.PHONY: test
test: modules lint generate-check unit faults guest ## all checks and tests

.PHONY: modules
modules: # what the commands below would fetch, and give up at the first failure
	@$(call persist,go list -deps -test ./... >/dev/null)

.PHONY: unit
unit: ## unit and in-process tests with the race detector; fuzz seeds run too
	go vet ./...
	CGO_ENABLED=1 go test -race -timeout 20m $(UNIT_PKGS) $(SUMMARY)
	go test ./device/ionic/rdma/... $(SUMMARY) # what the detector makes slow or upsets: more seeds, allocations

.PHONY: faults
faults: build ## faults of machines, cables and managers, with processes on hosts of their own (network namespaces)
	$(call say-sudo,the network of the fault tests)
	go test -count=1 -timeout 10m -v $(if $(SUDO),-exec '$(SUDO)') ./e2e/faults -args -bin $(CURDIR)/bin $(SUMMARY)
	go test -count=1 -timeout 10m -v ./e2e/standby -args -bin $(CURDIR)/bin $(SUMMARY)

.PHONY: guest
guest: build lab ## tests in real guests (QEMU, upstream ionic driver, stock rdma-core)
	$(call say-sudo,the guest lab)
	go test -count=1 -timeout 10m $(if $(SUDO),-exec '$(SUDO)') ./e2e/lab/selftest $(SUMMARY)
	go test -count=1 -timeout 30m -p 1 -v $(if $(SUDO),-exec '$(SUDO)') ./e2e/guesttest/... -args -bin $(CURDIR)/bin $(SUMMARY)

.PHONY: test-long
test-long: build lab ## the whole conformance matrix and 20 lives of a NIC in real guests; rewrites docs/conformance.md
	$(call say-sudo,the guest lab)
	go test -count=1 -timeout 1h -v $(if $(SUDO),-exec '$(SUDO)') ./e2e/guesttest/ethernet -args -bin $(CURDIR)/bin -long
	go test -count=1 -timeout 3h -v $(if $(SUDO),-exec '$(SUDO)') ./e2e/guesttest -args -bin $(CURDIR)/bin -long -report $(CURDIR)/docs/conformance.md

.PHONY: lab
lab: ## build what guests boot from, unless it is there (minutes the first time)
	go run ./e2e/lab/cmd/ernic-lab prepare

.PHONY: lint
lint: $(GOLANGCI_LINT) $(BUF) ## golangci-lint, buf lint
	@test -z "$$(git ls-files '*.go' | grep -v '\.pb\.go$$' | xargs gofmt -l)" || { echo 'gofmt would change:'; git ls-files '*.go' | grep -v '\.pb\.go$$' | xargs gofmt -l; exit 1; }
	$(GOLANGCI_LINT) run ./...
	$(BUF) lint

.PHONY: generate
generate: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## generate Go from proto/
	@ln -sf $(PROTOC_GEN_GO) $(TOOLS_DIR)/protoc-gen-go
	@ln -sf $(PROTOC_GEN_GO_GRPC) $(TOOLS_DIR)/protoc-gen-go-grpc
	PATH=$(TOOLS_DIR):$$PATH $(BUF) generate

.PHONY: generate-check
generate-check: generate ## fail when committed generated code is stale
	git diff --exit-code -- proto

.PHONY: bench
bench: build ## figures of the data path against plain TCP, from one run
	go run ./e2e/bench --bin bin

.PHONY: bench-mesh
bench-mesh: build ## a thousand workers and one manager: start of all, claims on their way, restarts, rest
	go run ./e2e/meshbench --bin bin

.PHONY: bench-ethernet
bench-ethernet: build ## Ethernet between real guests, over the mesh and TAPs, against virtio-net, from one run
	go run ./e2e/ethbench --bin bin

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (default 30s each)
	@for pkg in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg; \
	  done; done

.PHONY: clean
clean: ## remove what build made (the lab's cache stays: ernic-lab clean)
	rm -rf bin
