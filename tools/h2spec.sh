#!/usr/bin/env bash
# Builds h2spec, the HTTP/2 conformance suite, at the version that tools/h2spec/go.mod names.
#
#     tools/h2spec.sh FILE
#
# Needs Go 1.18 or newer (tools/need.sh test), and the network the first time.
set -euo pipefail
out="$(realpath -m "$1")"
cd "$(dirname "$0")/h2spec"
# No newer Go is fetched, and nothing but what go.sum lists.
GOTOOLCHAIN=local GOFLAGS=-mod=readonly GOWORK=off \
  go build -trimpath -o "$out" github.com/summerwind/h2spec/cmd/h2spec
