# fencegate: everything that a contributor runs. `make help` lists the targets.
#
# One profile for tests and lints: RocksDB takes minutes to compile, once a profile. CARGO_TARGET_DIR may be set from outside.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO_TARGET_DIR ?= target
override CARGO_TARGET_DIR := $(abspath $(CARGO_TARGET_DIR))
export CARGO_TARGET_DIR

# cargo-deny, where the machine has none, is built once and kept with the other artefacts.
DENY_VERSION := 0.20.2
TOOLS        := $(CARGO_TARGET_DIR)/tools
# rustup puts cargo here and leaves the PATH of running shells alone; nginx and haproxy live in sbin.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:$(TOOLS)/bin

CARGO := cargo
FLAGS := --release --locked
BIN   := $(CARGO_TARGET_DIR)/release/fencegate

# What `run` serves, and the acceptance suite with the names of its tests that may fail for now.
CONFIG  ?= config/fencegate.toml
ACCEPT  ?= ../shared/accept/accept.py
PENDING ?= tests/acceptance-pending.txt
JOBS    ?= 4
BENCH   ?=

# How long `fuzz` runs each target, and from which seed: with one other than 0 the run is the same each time.
FUZZ_SECONDS ?= 20
FUZZ_SEED    ?= 0

# What is shipped and measured: linked as one whole, guided by a profile. RocksDB is not compiled again for it.
DIST := $(CARGO_TARGET_DIR)/dist/fencegate

.PHONY: help build dist demo run test lint unit h2spec fuzz deny advisories accept bench fmt clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## Build the program
	@tools/need.sh build
	$(CARGO) build $(FLAGS)

dist: $(DIST) ## Build the program as it is shipped and measured; takes some minutes

# Guided by a profile of what was built, so made anew when anything that is built has changed.
$(DIST): $(shell find src -type f) Cargo.toml Cargo.lock benches/train.py tools/dist.sh
	@$(MAKE) build
	@tools/dist.sh

demo: build ## Show a zombie being refused, on this machine alone
	@$(BIN) demo

run: build ## Serve with CONFIG; makes the store of the sample, config/fencegate.toml, and of no other
	@if [ "$(CONFIG)" = config/fencegate.toml ]; then $(BIN) init --config $(CONFIG); fi
	@exec $(BIN) serve --config $(CONFIG)

test: ## Format, lints, docs, tests, a short fuzzing, licences, acceptance suite
	@tools/need.sh build test
	@$(MAKE) lint
	@$(MAKE) unit
	@$(MAKE) fuzz FUZZ_SECONDS=10 FUZZ_SEED=1
	@$(MAKE) deny
	@$(MAKE) accept

lint: ## Format, clippy and rustdoc, all without a warning
	$(CARGO) fmt --check
	$(CARGO) clippy $(FLAGS) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(FLAGS) --no-deps --document-private-items
	@tools/fuzz.sh lint

unit: ## The tests of the crate
	$(CARGO) test $(FLAGS) --no-fail-fast

h2spec: ## HTTP/2 conformance alone, case by case; a part of `unit`
	@tools/need.sh build test
	$(CARGO) test $(FLAGS) --test h2spec -- --nocapture

fuzz: ## Fuzz what reads requests and the config, FUZZ_SECONDS for each target
	@tools/need.sh build
	@tools/fuzz.sh test
	@tools/fuzz.sh run $(FUZZ_SECONDS) $(FUZZ_SEED)

deny: ## Licences, bans and sources of the dependencies
	@command -v cargo-deny >/dev/null || \
	  env -u CARGO_TARGET_DIR $(CARGO) install --locked --no-default-features --root $(TOOLS) cargo-deny@$(DENY_VERSION)
	$(CARGO) deny --locked check licenses bans sources

advisories: ## Known faults in the dependencies; asks the network, so not a part of `test`
	@command -v cargo-deny >/dev/null || $(MAKE) deny
	$(CARGO) deny --locked check advisories

accept: ## The acceptance suite, where it is at hand (ACCEPT)
	@if [ -f "$(ACCEPT)" ]; then \
	  $(CARGO) build $(FLAGS); \
	  python3 "$(ACCEPT)" --bin "$(BIN)" --pending "$(PENDING)" -j $(JOBS); \
	else \
	  echo "no acceptance suite at $(ACCEPT), not run"; \
	fi

bench: ## Measure beside nginx and HAProxy; options in BENCH, say BENCH="--rounds 3"
	@tools/need.sh build bench
	@$(MAKE) dist
	@python3 benches/side_by_side.py --bin $(DIST) $(BENCH)

fmt: ## Format the code
	$(CARGO) fmt
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml

clean: ## Remove what was built; keeps the store in data/
	$(CARGO) clean
