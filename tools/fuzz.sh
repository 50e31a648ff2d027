#!/usr/bin/env bash
# The fuzz targets of fuzz/: `head`, `path`, `token`, `config` and `signature`.
#
#     tools/fuzz.sh lint                           their format and lints
#     tools/fuzz.sh test                           their properties, over the corpus alone
#     tools/fuzz.sh run SECONDS [SEED] [TARGET...] the fuzzer, that long for each target
#     tools/fuzz.sh try TARGET FILE                one input, say of a fault that was found
#
# Needs neither a nightly compiler nor cargo-fuzz: what that asks the compiler for are options of LLVM, and
# libfuzzer-sys brings the fuzzer along. Only the sanitizers are left out, which do need a nightly one: the
# code has no `unsafe` that they could watch.
#
# The corpus in fuzz/corpus is only read. With a seed other than 0 a run keeps nothing and takes nothing from
# an earlier one, so that it can be repeated; else what it finds stays in the target folder for the next.
set -euo pipefail
cd "$(dirname "$0")/.."
host="$(rustc -vV | sed -n 's/^host: //p')"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/fuzz"
programs="$CARGO_TARGET_DIR/$host/release"

flags=(--cfg fuzzing -Cpasses=sancov-module)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
  flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done

# One set of flags for all, so that nothing is compiled twice. A target is named, so that the flags are not
# those of build scripts.
cargo_with_counters() {
  RUSTFLAGS="${RUSTFLAGS:-} ${flags[*]}" \
    cargo "$1" --release --locked --manifest-path fuzz/Cargo.toml --target "$host" "${@:2}"
}

run() {
  local seconds="$1" seed="${2:-0}" names=("${@:3}") name found
  if [ ${#names[@]} = 0 ]; then
    names=(head path token config signature)
  fi
  scratch="$(mktemp -d)"
  trap 'rm -rf "$scratch"' EXIT
  for name in "${names[@]}"; do
    found="$CARGO_TARGET_DIR/found/$name"
    if [ "$seed" != 0 ]; then
      found="$scratch/$name"
    fi
    mkdir -p "$found" "$CARGO_TARGET_DIR/faults/$name"
    echo "fuzz: $name for $seconds s"
    if ! "$programs/$name" -seed="$seed" -max_total_time="$seconds" -max_len=2048 -timeout=60 \
      -dict="fuzz/dict/$name.dict" -artifact_prefix="$CARGO_TARGET_DIR/faults/$name/" \
      "$found" "fuzz/corpus/$name" >"$scratch/log" 2>&1; then
      tail -n 100 "$scratch/log" >&2
      echo "fuzz: $name found a fault. Again: tools/fuzz.sh try $name FILE" >&2
      return 1
    fi
    grep -E '^#[0-9]+\s+DONE' "$scratch/log"
  done
}

case "${1:-}" in
  lint)
    cargo fmt --check --manifest-path fuzz/Cargo.toml
    cargo_with_counters clippy --lib --bins --tests -- -D warnings
    ;;
  test)
    cargo_with_counters test
    ;;
  run)
    cargo_with_counters build
    run "${@:2}"
    ;;
  try)
    cargo_with_counters build
    exec "$programs/${2:?}" "${3:?}"
    ;;
  *)
    sed -n '2,8s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
