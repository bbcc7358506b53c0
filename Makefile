# Every verb of the project. `make help` lists them.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

help: ## list the verbs
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

core: ## rebuild only the Rust extension, in place
	cargo build --release -p pagurid-py
	cp target/release/lib_core.so python/pagurid/_core.abi3.so

.PHONY: help core
