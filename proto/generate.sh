#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Lints the .proto files and generates the Go beside them. The versions of the tools are pinned here (buf) and in
# buf.gen.yaml (the two generators), nowhere else.
set -eu
cd "$(dirname "$0")/.."
BUF=github.com/bufbuild/buf/cmd/buf@v1.75.0
# One build, used three times; -o must not follow the caller's GOBIN or GOFLAGS.
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOFLAGS= GOBIN="$bin" go install "$BUF"
"$bin/buf" lint
"$bin/buf" format -d --exit-code
"$bin/buf" generate
