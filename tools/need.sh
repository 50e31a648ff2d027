#!/usr/bin/env bash
# Makes sure that this machine has what the named kinds of work need, and installs what is missing.
#
#     tools/need.sh [build] [test] [bench]
#
# Asks for root only where something is missing. Without apt it names what is missing and fails.
# Note that Debian starts nginx, haproxy and Prometheus as services when it installs them on a running system;
# the tests and benches use none of these, they start processes of their own.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:$HOME/.cargo/bin:/usr/sbin"

say() { echo "need: $*" >&2; }

has() { command -v "$1" >/dev/null 2>&1; }

# bindgen loads libclang at build time and wants clang's own headers with it; the link without a
# version comes with the -dev package, which has both.
has_libclang() {
  [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang.so' >/dev/null ||
    compgen -G '/usr/lib*/libclang.so' >/dev/null || compgen -G '/usr/lib/*/libclang.so' >/dev/null
}

# Another python3 may come before the system's, and have no use for the system's packages.
has_python_with() {
  local python
  for python in python3 /usr/bin/python3; do
    "$python" -c "import $1" >/dev/null 2>&1 && return
  done
  return 1
}

# A runtime alone has no compiler, and cannot run a source file.
has_java() { has java && java --list-modules 2>/dev/null | grep -q '^jdk\.compiler@'; }

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

install() {
  local how=(apt-get install -y --no-install-recommends "$@")
  if ! has apt-get; then
    say "missing, and no apt-get here to install it: $*"
    return 1
  elif [ "$(id -u)" != 0 ] && ! has sudo; then
    say "missing: $*. There is no sudo here; as root, run: ${how[*]}"
    return 1
  fi
  say "installing $*"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive "${how[@]}" -qq
}

# The oldest compiler that Cargo.toml allows.
msrv() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# The version that apt would install, without the packager's suffix; empty where there is none.
candidate() {
  apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *\([0-9][0-9.]*\).*/\1/p'
}

get_cargo() {
  local wanted
  wanted="$(msrv)"
  if has apt-get; then
    # A fresh system has no lists yet, and would seem to package nothing.
    if [ "$(id -u)" = 0 ] || has sudo; then as_root apt-get update -qq; fi
    if [ -n "$(candidate rustup)" ]; then
      install rustup ca-certificates
      rustup toolchain install stable --profile minimal -c clippy -c rustfmt
      rustup default stable
      return
    elif at_least "$(candidate cargo)" "$wanted"; then
      install cargo rust-clippy rustfmt
      return
    fi
  fi
  say "cargo is missing, and this system packages none as new as $wanted."
  say "Get it from https://rustup.rs, then run make again."
  return 1
}

need_cargo() {
  has cargo || get_cargo
  local have wanted
  have="$(cargo --version | cut -d ' ' -f 2)"
  wanted="$(msrv)"
  if ! at_least "$have" "$wanted"; then
    say "cargo is $have, the project needs $wanted or newer (with rustup: rustup update)"
    return 1
  fi
}

need_lints() {
  local part
  for part in fmt clippy; do
    cargo "$part" --version >/dev/null 2>&1 && continue
    if has rustup; then
      rustup component add "${part/fmt/rustfmt}"
    else
      say "cargo $part is missing"
      return 1
    fi
  done
}

case " $* " in
  *" build "*) need_cargo ;; # first: all else is for nothing without it
esac
missing=()
for kind in "$@"; do
  case "$kind" in
    build)
      has c++ || missing+=(g++)
      has_libclang || missing+=(libclang-dev)
      ;;
    test)
      has nginx || missing+=(nginx-light) # its DAV module is built in; PROPFIND is not needed
      has apache2 || missing+=(apache2-bin) # brings mod_dav, and no service
      has promtool || missing+=(prometheus)
      has prometheus-alertmanager || missing+=(prometheus-alertmanager)
      has strace || missing+=(strace)
      has python3 || missing+=(python3)
      # The clients of tests/interop.rs.
      has curl || missing+=(curl)
      has_python_with 'httpx, h2' || missing+=(python3 python3-httpx python3-h2)
      has_java || missing+=(default-jdk-headless)
      has node || missing+=(nodejs)
      has go || missing+=(golang-go ca-certificates) # builds h2spec
      has rclone || missing+=(rclone)
      has_python_with pip || missing+=(python3-pip) # brings moto and boto3
      ;;
    bench)
      has nginx || missing+=(nginx-light)
      has haproxy || missing+=(haproxy)
      has wrk || missing+=(wrk)
      has python3 || missing+=(python3)
      has taskset || missing+=(util-linux)
      ;;
    *)
      say "unknown kind of work: $kind"
      exit 2
      ;;
  esac
done
if [ ${#missing[@]} -gt 0 ]; then
  install "${missing[@]}"
fi
case " $* " in
  *" test "*) need_lints ;;
esac
