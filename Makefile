# The set-up is one chain: Java and Python are looked for first, before anything is made or fetched.
# Every target below "The set-up" may be called at once, on a clean checkout, with -j.

MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON := python3.11
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet --retries 10
ROOMS := $(patsubst %/__init__.py,%,$(wildcard jobs/__init__.py assets/__init__.py expectations/__init__.py orchestration/__init__.py))
HELPERS = $(shell find tests -name "*.py" ! -name "test_*.py")

export PIP_NO_INPUT := 1

.PHONY: help
help:
	@echo "make run     show what Tidelake does, on data of its own"
	@echo "make test    run the tests"
	@echo "make sweep   kills, races and random histories; TIDELAKE_SWEEP_SEEDS=10 runs ten seeds of each"
	@echo "make check   lint, format, types, and which room may import which"
	@echo "make docs    the documentation as a site, in build/site; it works offline"
	@echo "make bench   speed beside what a user would pick instead; bench-quick is bounded, bench-large has 100 M rows"
	@echo "make bench-peers  what stands beside it there: Pathway, and a reader in Rust; without it those are left out"
	@echo "make ui      Dagster's pages, on this machine only"
	@echo "make setup   only what all of the above need: .venv and .jars"
	@echo "make services  what the tests need on top: the jars of a broker and of Debezium, in .jars/services"
	@echo "make lock    choose package versions and jar sums anew, within pyproject.toml and *.lock"
	@echo "make clean   remove all that the set-up and the tools have made"

# The set-up

.PHONY: setup
setup: .venv/.project | toolchain
	@$(BIN)/python -m tidelake.spark.jars
	@$(BIN)/python -m orchestration.class_archive

# What tests start beside it: a broker, Connect and Debezium. PostgreSQL comes with the packages.
.PHONY: services
services: setup
	@$(BIN)/python -m tidelake.spark.jars --services

.PHONY: toolchain
toolchain:
	@sh src/tidelake/spark/java.sh
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  command -v $(PYTHON) >/dev/null && \
	    echo "python: $(PYTHON) is here without venv. hint: apt-get install $(PYTHON)-venv" >&2 || \
	    echo "python: no $(PYTHON) on PATH. hint: apt-get install $(PYTHON) $(PYTHON)-venv, dnf install $(PYTHON)," \
	      "or brew install python@3.11" >&2; \
	  exit 1; }

# PySpark comes as source. The locked setuptools builds it, so that nothing unlocked is ever run.
.venv/.packages: requirements.lock | toolchain
	@$(BIN)/python -c '' 2>/dev/null || { echo "python: a new .venv"; $(PYTHON) -m venv --clear .venv; }
	@echo "packages: installing what requirements.lock says (about 1.4 GB; one to three minutes)"
	@sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock > .venv/build.txt
	@$(PIP) install --no-deps --require-hashes -r .venv/build.txt
	@$(PIP) install --no-deps --require-hashes --no-build-isolation -r requirements.lock
	@$(PIP) check >/dev/null || $(PIP) check
	@touch $@

.venv/.project: pyproject.toml .venv/.packages | toolchain
	@echo "project: installing this checkout"
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# What people call

.PHONY: run
run: setup
	@$(BIN)/python -m examples.demo

.PHONY: test
test: services
	@$(BIN)/pytest -n 2 --dist worksteal

# Bounded, where TIDELAKE_SWEEP_SECONDS says so, as in continuous integration: then cases of every kind in turn.
export TIDELAKE_SWEEP_SEEDS ?= 1
.PHONY: sweep
sweep: services
	@$(BIN)/pytest -m sweep -n 2

# The variable silences an advertisement of a successor.
.PHONY: docs
docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet && echo "docs: build/site/index.html"

# Beside each other on one machine and in one run; results.json and a chart go to data/benchmarks.
.PHONY: bench bench-quick bench-large
bench: setup
	@$(BIN)/python -m benchmarks
bench-quick: setup
	@$(BIN)/python -m benchmarks --quick --seconds 120
bench-large: setup
	@$(BIN)/python -m benchmarks --large

# What stands beside it and is no package of ours. What cannot be had is left out of `make bench`, by name.
CARGO := $(or $(shell command -v cargo),$(wildcard $(HOME)/.cargo/bin/cargo))
.PHONY: bench-peers
bench-peers: toolchain
	@test -x .peers/pathway/bin/python || $(PYTHON) -m venv .peers/pathway
	@echo "peers: Pathway's environment (1.6 GB)"
	@.peers/pathway/bin/pip --disable-pip-version-check --quiet install --no-deps --require-hashes \
	  -r benchmarks/peers/pathway/requirements.lock
	@test -z "$(CARGO)" || { cp -r benchmarks/peers/differential .peers/ && cd .peers/differential && \
	  echo "peers: differential dataflow's reader (a minute or two)" && $(CARGO) build --quiet --release --target-dir .; }
	@test -n "$(CARGO)" || echo "peers: no cargo on PATH. hint: install Rust, or do without differential dataflow's reader"

.PHONY: check
check: setup
	@echo "check: ruff" && $(BIN)/ruff check --quiet .
	@echo "check: format" && $(BIN)/ruff format --quiet --check .
	@echo "check: types" && $(BIN)/mypy --no-error-summary src $(ROOMS) $(HELPERS)
	@echo "check: imports" && $(BIN)/lint-imports

# Beside a src/ folder, dg looks for every module there: the workspace file says where ours are.
# Where nobody has written a collections.yaml yet, the demo's is shown.
DEMO_CONFIG := $(CURDIR)/data/demo/collections.yaml
.PHONY: ui
ui: setup
	@mkdir -p .dagster_home && cp orchestration/dagster.yaml .dagster_home/dagster.yaml
	@test -n "$$TIDELAKE_CONFIG" -o -e collections.yaml -o ! -e "$(DEMO_CONFIG)" || export TIDELAKE_CONFIG="$(DEMO_CONFIG)"; \
	  PATH="$(CURDIR)/$(BIN):$$PATH" DAGSTER_HOME="$(CURDIR)/.dagster_home" $(BIN)/dg dev --host 127.0.0.1 --port 3000 -w workspace.yaml

# uv writes addresses into a lock of its own, so it works in a folder that does not stay. The second pass only tells
# which extras the packages are asked for with: pip wants them named where it checks hashes.
.PHONY: lock
lock: setup
	@set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	  $(PYTHON) -m venv "$$scratch/venv"; "$$scratch/venv/bin/pip" install --quiet uv; uv=$$scratch/venv/bin/uv; \
	  cp pyproject.toml "$$scratch"; cd "$$scratch"; \
	  $$uv lock --quiet --python $(PYTHON); \
	  $$uv export --quiet --all-groups --no-emit-project --no-header --no-annotate --output-file pins.txt >/dev/null; \
	  $$uv pip compile --quiet --python $(PYTHON) --no-strip-extras --no-annotate --no-header \
	    --group dev --group build --group docs --constraint pins.txt pyproject.toml \
	    | sed -nE 's/^([a-z0-9._-]+)(\[[^]]+\])==.*/s|^\1==|\1\2==|/p' > extras.sed; \
	  sed -f extras.sed pins.txt > "$(CURDIR)/requirements.lock"
	@$(BIN)/python -m tidelake.spark.jars --relock
	@$(BIN)/python -m tidelake.spark.jars --services --relock
	@echo "lock: requirements.lock, jars.lock and services.lock are new; read the change, then make test"

.PHONY: clean
clean:
	@rm -rf .venv .jars .peers .logs .dagster_home .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis \
	  build dist spark-warehouse metastore_db derby.log
	@find src $(ROOMS) $(wildcard tests benchmarks examples) -name __pycache__ -type d -prune -exec rm -rf {} +
