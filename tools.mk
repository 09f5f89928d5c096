# Versions of the tools that check and generate code: the only place they are named.
BUF_VERSION           := v1.75.0
GOLANGCI_LINT_VERSION := v2.15.0
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2

# Tools are built once per version into the user's cache, outside the checkout.
CACHE     := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ernic
TOOLS_DIR := $(CACHE)/tools

BUF           := $(TOOLS_DIR)/buf-$(BUF_VERSION)
GOLANGCI_LINT := $(TOOLS_DIR)/golangci-lint-$(GOLANGCI_LINT_VERSION)
PROTOC_GEN_GO := $(TOOLS_DIR)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION)
PROTOC_GEN_GO_GRPC := $(TOOLS_DIR)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC_VERSION)

# Runs a command that fetches something up to three times: a proxy may be away.
persist = { $(1) || { sleep 5; $(1); } || { sleep 30; $(1); }; }

# $(1) module path, $(2) version, $(3) binary name
define install-tool
	@mkdir -p $(TOOLS_DIR)
	@echo "building $(3) $(2) (once)"
	@tmp=$$(mktemp -d) && $(call persist,GOBIN=$$tmp go install $(1)@$(2)) && mv $$tmp/$(3) $(TOOLS_DIR)/$(3)-$(2) && rm -r $$tmp
endef

$(BUF):
	$(call install-tool,github.com/bufbuild/buf/cmd/buf,$(BUF_VERSION),buf)
$(GOLANGCI_LINT):
	$(call install-tool,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,$(GOLANGCI_LINT_VERSION),golangci-lint)
$(PROTOC_GEN_GO):
	$(call install-tool,google.golang.org/protobuf/cmd/protoc-gen-go,$(PROTOC_GEN_GO_VERSION),protoc-gen-go)
$(PROTOC_GEN_GO_GRPC):
	$(call install-tool,google.golang.org/grpc/cmd/protoc-gen-go-grpc,$(PROTOC_GEN_GO_GRPC_VERSION),protoc-gen-go-grpc)
