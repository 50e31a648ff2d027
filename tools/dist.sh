#!/usr/bin/env bash
# Builds the program as it is shipped and measured: linked as one whole, and guided by a profile of
# itself at work (profile-guided optimisation, https://doc.rust-lang.org/rustc/profile-guided-optimization.html).
#
#     CARGO_TARGET_DIR=target tools/dist.sh
#
# Wants `make build` done before: RocksDB is not compiled again. Where this machine has no python3 for the
# training, or no llvm-profdata of the compiler's own version and no rustup to get it from, the program
# is built without a profile, and that is said.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:?}"
host="$(rustc -vV | sed -n 's/^host: //p')"
tools="$(rustc --print sysroot)/lib/rustlib/$host/bin"
lib="$(ls -t "$target"/release/build/librocksdb-sys-*/out/librocksdb.a | head -n 1)"
export ROCKSDB_LIB_DIR="${lib%/*}" ROCKSDB_STATIC=1

say() { echo "dist: $*" >&2; }

has_profdata() {
  [ -x "$tools/llvm-profdata" ] || { rustup component add llvm-tools >&2 && [ -x "$tools/llvm-profdata" ]; }
}

# Builds with the flags into a folder of its own, so that neither build undoes the other.
build() {
  CARGO_TARGET_DIR="$target/dist-$1" RUSTFLAGS="${RUSTFLAGS:-} ${2:-}" \
    cargo build --profile dist --locked --bin fencegate --target "$host"
}

built() { echo "$target/dist-$1/$host/dist/fencegate"; }

flags=()
if ! command -v python3 >/dev/null; then
  say "no python3: building without a profile"
elif ! has_profdata; then
  say "no llvm-profdata for this compiler: building without a profile"
else
  raw="$target/dist-trained/raw"
  rm -rf "$raw"
  build trained "-Cprofile-generate=$raw"
  python3 benches/train.py --bin "$(built trained)"
  "$tools/llvm-profdata" merge -o "$target/dist-trained/new.profdata" "$raw"
  # Named by what is in it: another profile is another build.
  profile="$target/dist-trained/$(sha256sum "$target/dist-trained/new.profdata" | cut -c 1-16).profdata"
  mv "$target/dist-trained/new.profdata" "$profile"
  find "$target/dist-trained" -maxdepth 1 -name '*.profdata' ! -path "$profile" -delete
  flags=("-Cprofile-use=$profile")
fi
build guided "${flags[@]}"
mkdir -p "$target/dist"
cp "$(built guided)" "$target/dist/fencegate"
