#!/usr/bin/env bash
# Builds MinIO, a real object store for the tests, at the version that tools/minio/go.mod names.
#
#     tools/minio.sh FILE
#
# Needs the network the first time, and the Go that go.mod names or a newer one: ends with 3 where there is none.
set -euo pipefail
out="$(realpath -m "$1")"
cd "$(dirname "$0")/minio"
wanted="$(sed -n 's/^go //p' go.mod)"
have="$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | sed 's/^go//' || true)"
if [ -z "$have" ] || [ "$(printf '%s\n%s\n' "$have" "$wanted" | sort -V | head -n 1)" != "$wanted" ]; then
  echo "minio: needs Go $wanted or newer, and there is ${have:-none}" >&2
  exit 3
fi
# Several tests may ask at once.
mkdir -p "${out%/*}"
exec 9>"$out.lock"
flock 9
# No newer Go is fetched, and nothing but what go.sum lists.
GOTOOLCHAIN=local GOFLAGS=-mod=readonly GOWORK=off \
  go build -trimpath -o "$out" github.com/minio/minio
