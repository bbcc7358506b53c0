# Every verb of the project; `make help` lists them. On a fresh machine `make serve` and `make test` set up
# everything they need by themselves, given Python >= 3.11, a Rust toolchain and Node >= 20.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STATIC := python/pagurid/server/static
PYTEST_FLAGS ?=

# ── set-up ────────────────────────────────────────────────────────────────────────────────────────

help: ## list the verbs
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-17s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed core web ## make .venv with the pagurid command, the release build and the web UI

$(VENV)/.locked: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pagurid needs Python >= 3.11; this is " + sys.version)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml tools/build_backend.py
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

core: ## rebuild the Rust extension in place
	@cargo build --release --quiet -p pagurid-py
	@cp target/release/lib_core$(if $(filter Darwin,$(shell uname)),.dylib,.so) python/pagurid/_core.abi3.so

web: $(STATIC)/index.html ## build the chat UI

web/node_modules/.installed: web/package-lock.json
	@node -e 'if (+process.versions.node.split(".")[0] < 20) { console.error("pagurid needs Node >= 20; this is " + process.version); process.exit(1) }'
	cd web && npm ci --no-audit --no-fund --loglevel=error
	touch $@

WEB_SOURCES := $(shell find web -path web/node_modules -prune -o -type f -print 2>/dev/null)
$(STATIC)/index.html: web/node_modules/.installed $(WEB_SOURCES)
	cd web && npm run --silent build
	touch $@

lock: ## renew requirements.lock from pyproject.toml
	uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --group dev pyproject.toml -o requirements.lock

# ── run ───────────────────────────────────────────────────────────────────────────────────────────

serve: setup ## serve the default model at http://127.0.0.1:8000 (more flags: make serve ARGS="--port 9000")
	$(BIN)/pagurid serve $(ARGS)

bench: setup ## measure this machine: core, kernels, then a server under load
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/serve.py --self-hosted

bench-peers: setup ## measure Pagurid beside llama.cpp, vLLM and transformers (fewer rounds: make bench-peers ARGS=--quick)
	$(BIN)/python benchmarks/peers.py $(ARGS)

# ── check ─────────────────────────────────────────────────────────────────────────────────────────

test: setup lint test-rust test-loom test-loom-mutants test-web test-python ## everything CI runs

test-rust: ## unit and property tests of the crates
	cargo test --workspace --quiet

LOOM_PREEMPTIONS ?= 3
test-loom: ## the interleavings of the lock-free structures, LOOM_PREEMPTIONS deep (empty: all of them)
	RUSTFLAGS="--cfg loom" $(if $(LOOM_PREEMPTIONS),LOOM_MAX_PREEMPTIONS=$(LOOM_PREEMPTIONS)) \
		cargo test -p pagurid-lockfree --profile loom --target-dir target/loom --quiet --test loom

test-loom-mutants: ## break the lock-free structures on purpose: the interleavings must notice
	$(PYTHON) tools/loom_mutants.py

test-web: web/node_modules/.installed ## unit tests of the chat UI
	cd web && npm test --silent

test-python: setup browser ## unit, kernel, server and browser tests
	$(BIN)/python -m pytest -m "not deep" $(PYTEST_FLAGS)

test-deep: setup browser ## the long forms: simulations and statistics at full size
	PROPTEST_CASES=20000 cargo test --workspace --release --quiet -- --include-ignored
	$(MAKE) test-loom LOOM_PREEMPTIONS=
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

browser: $(VENV)/.locked
	@tools/ensure_chromium.sh $(BIN)/python

lint: setup ## formatters in check mode, linters, type checks, import rules
	$(BIN)/ruff format --check python tests benchmarks tools
	$(BIN)/ruff check python tests benchmarks tools
	$(BIN)/mypy
	MYPYPATH=python $(BIN)/stubtest pagurid._core
	$(BIN)/lint-imports --no-cache
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	RUSTFLAGS="--cfg loom" cargo clippy -p pagurid-lockfree --target-dir target/loom --tests --quiet -- -D warnings
	git ls-files 'kernels/*.cu' 'kernels/*.cuh' 'kernels/*.h' 'kernels/*.cpp' | xargs -r $(BIN)/clang-format --dry-run -Werror
	cd web && npm run --silent check && npm run --silent lint

format: setup ## format everything in place
	$(BIN)/ruff format python tests benchmarks tools
	$(BIN)/ruff check --fix python tests benchmarks tools
	cargo fmt --all
	git ls-files 'kernels/*.cu' 'kernels/*.cuh' 'kernels/*.h' 'kernels/*.cpp' | xargs -r $(BIN)/clang-format -i
	cd web && npm run --silent format

clean: ## remove everything that set-up made
	rm -rf $(VENV) target dist web/node_modules $(STATIC) python/pagurid/_core*.so

.PHONY: help setup core web lock serve bench bench-peers test test-rust test-loom test-loom-mutants test-web test-python test-deep browser lint format clean
