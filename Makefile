# The set-up is one chain: it looks for Java and Python before it creates or downloads anything.
# Every target below "The set-up" can be called directly on a clean checkout, even with -j.

MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON := python3.11
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet --retries 10
PACKAGES := $(patsubst %/__init__.py,%,$(wildcard jobs/__init__.py assets/__init__.py expectations/__init__.py orchestration/__init__.py))

export PIP_NO_INPUT := 1

.PHONY: help
help:
	@echo "make run     show what Tidelake does, on sample data"
	@echo "make test    run the tests"
	@echo "make sweep   kills, races and random histories; TIDELAKE_SWEEP_SEEDS=10 runs ten seeds of each"
	@echo "make check   check style, formatting, types, and imports between packages"
	@echo "make docs    build the documentation site in build/site; it works offline"
	@echo "make bench   measure speed against peers; bench-quick has a time limit, bench-large uses 100 M rows"
	@echo "make bench-peers  fetch external peers: Pathway, and a reader in Rust; make bench leaves out those that are missing"
	@echo "make ui      start Dagster, reachable only from this machine; PORT=3001 replaces the port 3000"
	@echo "make wheel   build an installable package in dist, with the jobs and the Dagster location"
	@echo "make setup   create only what all of the above need: .venv and .jars"
	@echo "make services  fetch what the tests need, into .jars: a broker, Debezium, Prometheus, and the jars for S3"
	@echo "make minio   build MinIO, a second S3 server for the tests, in .jars/minio; needs Go, takes four minutes"
	@echo "make lock    update the lock files: package versions within the bounds of pyproject.toml, and checksums of jars"
	@echo "make clean   remove everything that the set-up and the tools have created"

# The set-up

.PHONY: setup
setup: .venv/.project | toolchain
	@$(BIN)/python -m tidelake.spark.jars
	@$(BIN)/python -m orchestration.class_archive

# The services that tests start: a broker, Connect and Debezium. PostgreSQL comes with the packages.
.PHONY: services
services: setup prometheus
	@$(BIN)/python -m tidelake.spark.jars --services
	@$(BIN)/python -m tidelake.spark.jars --set s3

# Debian's Prometheus evaluates the alert rules in the tests. It is only unpacked: installing it would start a server.
# Without it, the tests that need it are skipped.
PROMETHEUS := .jars/prometheus
.PHONY: prometheus
prometheus:
	@command -v promtool >/dev/null || test -x $(PROMETHEUS)/promtool || ! command -v apt-get >/dev/null || { \
	  set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; cd "$$scratch"; \
	  echo "prometheus: unpacking Debian's package (19 MB)"; \
	  get='apt-get -qq -o APT::Sandbox::User=root download prometheus'; \
	  { $$get 2>/dev/null || { apt-get -qq update && $$get; }; } && dpkg-deb -x prometheus_*.deb . && \
	  mkdir -p "$(CURDIR)/$(PROMETHEUS)" && \
	  mv usr/bin/prometheus usr/bin/promtool "$(CURDIR)/$(PROMETHEUS)/"; } || \
	  echo "prometheus: not available; the tests that need it are skipped"

# A second S3 server, for TIDELAKE_TEST_S3=minio. Without it, tests on MinIO are skipped.
MINIO := v0.0.0-20250907161309-07c3a429bfed
.PHONY: minio
minio:
	@command -v minio >/dev/null || test -x .jars/minio/minio || { command -v go >/dev/null && \
	  echo "minio: building RELEASE.2025-09-07T16-13-09Z (four minutes on two cores, 110 MB)" && \
	  GOBIN="$(CURDIR)/.jars/minio" GOFLAGS="-buildvcs=false -trimpath" timeout 3600 nice -n 10 \
	    go install -ldflags "-s -w" github.com/minio/minio@$(MINIO); } || \
	  echo "minio: not available, because Go is not on PATH or cannot build it; tests on MinIO are skipped"

.PHONY: toolchain
toolchain:
	@sh src/tidelake/spark/java.sh
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  command -v $(PYTHON) >/dev/null && \
	    echo "python: $(PYTHON) has no venv. hint: apt-get install $(PYTHON)-venv" >&2 || \
	    echo "python: no $(PYTHON) on PATH. hint: apt-get install $(PYTHON) $(PYTHON)-venv, dnf install $(PYTHON)," \
	      "or brew install python@3.11" >&2; \
	  exit 1; }

# PySpark is a source package. The locked setuptools builds it, so that no unlocked code ever runs.
.venv/.packages: requirements.lock | toolchain
	@$(BIN)/python -c '' 2>/dev/null || { echo "python: creating .venv"; $(PYTHON) -m venv --clear .venv; }
	@echo "packages: installing requirements.lock (about 1.4 GB; one to three minutes)"
	@sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock > .venv/build.txt
	@$(PIP) install --no-deps --require-hashes -r .venv/build.txt
	@$(PIP) install --no-deps --require-hashes --no-build-isolation -r requirements.lock
	@$(PIP) check >/dev/null || $(PIP) check
	@touch $@

.venv/.project: pyproject.toml .venv/.packages | toolchain
	@echo "project: installing this checkout"
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# Targets for people

# UPDATES=2000 makes the large topics of the demo smaller.
.PHONY: run
run: setup
	@$(BIN)/python -m examples.demo $(if $(UPDATES),--updates $(UPDATES))

.PHONY: test
test: services
	@$(BIN)/pytest -n 2 --dist worksteal

# TIDELAKE_SWEEP_SECONDS limits the time of a sweep, as in continuous integration. Cases of each kind then run in turn.
export TIDELAKE_SWEEP_SEEDS ?= 1
.PHONY: sweep
sweep: services
	@$(BIN)/pytest -m sweep -n 2

# With --quiet, MkDocs does not count warnings, so --strict would accept them. The variable silences the theme's warning
# about MkDocs 2.
.PHONY: docs
docs: setup
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	  NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict >"$$log" 2>&1 || { grep -v '^INFO' "$$log" >&2; exit 1; }
	@echo "docs: build/site/index.html"

# All contestants run on one machine, in one run; results.json and charts are written to data/benchmarks.
.PHONY: bench bench-quick bench-large
bench: setup
	@$(BIN)/python -m benchmarks
bench-quick: setup
	@$(BIN)/python -m benchmarks --quick --seconds 120
bench-large: setup
	@$(BIN)/python -m benchmarks --large

# The external peers. `make bench` leaves out those that are not available, and names them.
CARGO := $(or $(shell command -v cargo),$(wildcard $(HOME)/.cargo/bin/cargo))
.PHONY: bench-peers
bench-peers: toolchain
	@test -x .peers/pathway/bin/python || $(PYTHON) -m venv .peers/pathway
	@echo "peers: Pathway's environment (1.6 GB)"
	@.peers/pathway/bin/pip --disable-pip-version-check --quiet install --no-deps --require-hashes \
	  -r benchmarks/peers/pathway/requirements.lock
	@test -z "$(CARGO)" || { cp -r benchmarks/peers/differential .peers/ && cd .peers/differential && \
	  echo "peers: differential dataflow's reader (one to two minutes)" && $(CARGO) build --quiet --release --target-dir .; }
	@test -n "$(CARGO)" || echo "peers: no cargo on PATH. hint: install Rust, or measure without differential dataflow's reader"

.PHONY: check
check: setup
	@echo "check: ruff" && $(BIN)/ruff check --quiet .
	@echo "check: format" && $(BIN)/ruff format --quiet --check .
	@echo "check: types" && $(BIN)/mypy --no-error-summary src $(PACKAGES) tests benchmarks examples docs hatch_build.py
	@echo "check: imports" && $(BIN)/lint-imports

# No package index is queried: the locked hatchling builds the wheel.
.PHONY: wheel
wheel: setup
	@rm -rf dist && $(PIP) wheel --no-deps --no-build-isolation --no-index --wheel-dir dist . && ls dist/*.whl

# If there is a src/ folder, dg looks for every module in it, so the workspace file says where the modules are.
# If there is no collections.yaml yet, the UI shows the demo.
DEMO_CONFIG := $(CURDIR)/data/demo/collections.yaml
PORT ?= 3000
.PHONY: ui
ui: setup
	@$(BIN)/python -m orchestration.port "$(PORT)"
	@mkdir -p .dagster_home && cp orchestration/dagster.yaml .dagster_home/dagster.yaml
	@test -n "$$TIDELAKE_CONFIG" -o -e collections.yaml -o ! -e "$(DEMO_CONFIG)" || export TIDELAKE_CONFIG="$(DEMO_CONFIG)"; \
	  PATH="$(CURDIR)/$(BIN):$$PATH" DAGSTER_HOME="$(CURDIR)/.dagster_home" $(BIN)/dg dev --host 127.0.0.1 --port "$(PORT)" -w workspace.yaml

# uv writes URLs into a lock file of its own, so it runs in a temporary folder. The second pass only finds out which
# extras of the packages are required: pip needs their names when it checks hashes.
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
	@echo "lock: requirements.lock, jars.lock and services.lock are updated; review the diff, then run make test"

.PHONY: clean
clean:
	@rm -rf .venv .jars .peers .logs .dagster_home .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis \
	  build dist spark-warehouse metastore_db derby.log
	@find src $(PACKAGES) $(wildcard tests benchmarks examples) -name __pycache__ -type d -prune -exec rm -rf {} +
