# Everything a developer or a newcomer does starts here: `make help`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 2000
STEPS ?= 300
CASES ?= tests/conformance/cases/*.json
CORES := $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')
MEMORY_GIB := $(shell $(PYTHON) -c 'import os; print(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30)')
# Tests with servers wait most of their time: so twice as many at once as there are cores, and three
# times where most are such tests, if each has 3 GiB for itself and a JVM. Those without seldom wait,
# and each process that runs them finds all tests first, 11 s of CPU.
PARALLEL ?= --numprocesses $(shell expr 2 \* $(CORES)) --dist worksteal
PARALLEL_REST ?= --numprocesses $(shell $(PYTHON) -c 'print(max($(CORES), min(3 * $(CORES), $(MEMORY_GIB) // 3)))') --dist worksteal
PARALLEL_CHECK ?= --numprocesses $(shell expr 1 + $(CORES)) --dist worksteal
FUZZ_SECONDS ?= 600
# A bare machine has no lists of packages yet.
APT = (apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends $(1))
ENGINE ?= $(shell docker info >/dev/null 2>&1 && echo docker || echo podman)

# Containers often forbid Python to keep what it has compiled: then each process compiles it anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo console check test test-all at-once compiled static short rest lowest pythons format lint type imports sim engines long conformance generate objects clients kafka queues browser prometheus docs golden images package release scan cluster cluster-images cluster-down e2e bench clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(VENV)/.done $(VENV)/spark.jsa ## Make .venv with everything in it (no Java needed)

$(VENV)/.done: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Onyx needs Python 3.11 or newer, \
	$(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.11 ...")'
	@echo "Making $(VENV) with some 50 packages; this takes a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,s3,spill,sql,kafka,http,redis,nats,console,examples,docs,test,check,release,bench]' \
	  || { echo "The packages could not be installed: see above. Is there a network?"; exit 1; }
	touch $@

$(VENV)/spark.jsa: $(VENV)/.done
	@echo "Archiving the classes of Spark: half a minute, and a third less CPU for each of its JVMs."
	@$(BIN)/python -m tests.support.servers.spark_archive $@ >/dev/null 2>&1

demo: setup ## Run the flights job on 4 worker processes and check it against pandas
	SPARK_SUBMIT_OPTS="$${SPARK_SUBMIT_OPTS-$$($(BIN)/python -m tests.support.servers.spark_archive)}" \
	  $(BIN)/python examples/flights/demo.py

console: setup ## Show the jobs of the last `make demo` in a browser
	$(BIN)/onyx console --kept examples/flights/.onyx/log

check: at-once ## What a developer runs before a commit: `make test` without servers
	$(BIN)/python -m pytest $(PARALLEL_CHECK) --tier short -m "not server"

test: at-once short ## Pass what a change can plausibly break: linter, types, import contracts, tests (8 minutes)

test-all: test rest ## Pass everything: also slow tests, and properties and simulations at length

at-once: setup
	@$(MAKE) --no-print-directory --jobs $(CORES) static compiled

compiled: setup
# In a new checkout each process of pytest would compile all tests. What is wrong, tests say later.
# In one that has been used each compiles what has changed, which takes less than to look for it.
	@ls tests/unit/*/__pycache__/*-pytest-*.pyc >/dev/null 2>&1 || \
	  $(BIN)/python -m pytest --collect-only --quiet --tier short >/dev/null || true

static: lint type imports ## Check all that needs no test: format, style, types, import contracts

short: setup ## Run the tests of `make test`
	$(BIN)/python -m pytest $(PARALLEL) --tier short

rest: setup ## Run the tests that `make test-all` has besides
	$(BIN)/python -m pytest $(PARALLEL_REST) --tier rest

# What Onyx is tested with besides: all packages but Spark, whose versions go with one Python.
ENGINE_EXTRAS := s3,spill,sql,kafka,http,redis,nats,operator,examples,test
ENGINE_TESTS := $(addprefix tests/unit/,codec flow ledger plugins replica state task telemetry transport windows) \
  --deselect tests/unit/transport/test_transport_generated.py

LOWEST := $(VENV)-lowest
lowest: ## Test the engine with the lowest versions that pyproject.toml allows, in a .venv of its own (3 minutes)
	$(PYTHON) -m venv $(LOWEST)
	awk -F '[=#]' '{name = tolower($$1); gsub("_", "-", name)} NR == FNR {low[name] = 1; print; next} !(name in low)' \
	  constraints-lowest.txt constraints.txt > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt -e '.[$(ENGINE_EXTRAS)]'
	$(LOWEST)/bin/python -m pytest $(PARALLEL) $(ENGINE_TESTS)

PYTHONS ?= $(foreach each,3.12 3.13 3.14,$(firstword $(wildcard $(HOME)/.pyenv/versions/$(each).*/bin/python) python$(each)))
pythons: ## Test all units that need no server with other Pythons, as far as they are there, each in a .venv of its own (10 minutes each)
	for python in $(PYTHONS); do \
	  name=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || { echo "NOT RUN: there is no $$python"; continue; }; \
	  $$python -m venv $(VENV)-$$name && \
	  $(VENV)-$$name/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,console,$(ENGINE_EXTRAS)]' && \
	  $(VENV)-$$name/bin/python -m pytest $(PARALLEL) --tier short -m "not server" tests/unit --deselect tests/unit/transport/test_transport_generated.py || exit 1; \
	done

lint: setup ## Check format and style
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

format: setup ## Mend format and style where that is mechanical
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

type: setup ## Check types
	$(BIN)/mypy

imports: setup ## Check that imports run downward only
	$(BIN)/lint-imports --no-cache

sim: setup ## Simulate clusters, and jobs with windows, requests, state or joins: SEEDS=2000, or one by SEED=7 STEPS=300 WORLD=cluster (BUG=B1 plants a bug)
	$(BIN)/python -m tests.sim --seeds $(SEEDS) --steps $(STEPS) $(if $(SEED),--seed $(SEED)) $(if $(BUG),--bug $(BUG)) $(if $(WORLD),--world $(WORLD))

engines: setup ## Compare random jobs with DuckDB: SEEDS=2000 of each world, or one by SEED=7 WORLD=windows
	$(BIN)/python -m tests.engines --seeds $(SEEDS) $(if $(SEED),--seed $(SEED)) $(if $(WORLD),--world $(WORLD))

long: setup ## Attack what strangers reach with changed manifests, requests, frames and files: FUZZ_SECONDS=600
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

conformance: setup ## Run conformance case files: CASES='FILE...'
	$(BIN)/python -m tests.conformance $(CASES)

generate: setup ## Generate what is derived: CRDs, reference pages, dashboards, protobuf classes
	$(BIN)/python -m onyx.model.generate
	$(BIN)/python -m onyx.builder.generate
	$(BIN)/python -m onyx.telemetry.generate
	$(BIN)/python -m onyx_operator.generate
	$(BIN)/python -m charts.generate
	$(BIN)/python -m tests.support.generated.public_api
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=worker --pyi_out=worker proto/onyx/wire/v1/*.proto

docs: setup ## Build the pages as a site, build/site/index.html; a dead link is an error
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --jobs auto -c docs . build/site
	@echo "open $(CURDIR)/build/site/index.html"

objects: setup ## Build the object store that tests run (once, with Go, 2 minutes); without it they are skipped
	$(BIN)/python -m tests.support.servers.object_stores

clients: setup ## Build the client in Go that tests run (once, with Go, 3 minutes); without it they are skipped
	$(BIN)/python -m tests.support.clients.go_client

kafka: setup ## Fetch the Kafka that tests run (once, with Maven, 44 MB); without it they are skipped
	$(BIN)/python -m tests.support.servers.kafka_jars

queues: setup ## Fetch the Redis and build the NATS that tests run (once, with apt-get and Go); without them they are skipped
	$(BIN)/python -m tests.support.servers.queue_programs

browser: ## Install the Chromium that tests drive (Debian, as root); without it they are skipped
	@command -v chromium >/dev/null || $(call APT,chromium)

prometheus: ## Install the Prometheus that tests of dashboards and alerts run (Debian, as root); without it they are skipped
	@command -v promtool >/dev/null || $(call APT,prometheus)

golden: setup ## Renew the golden renderings of the chart
	$(BIN)/python -m tests.support.generated.chart

images: ## Build all images: ENGINE=docker REGISTRY=... TAG=... PLATFORMS=linux/amd64,linux/arm64 SOURCE=URL BUILD_FLAGS=...
	@$(PYTHON) -m release.images $(ENGINE) $(PLATFORMS)

package: setup ## Write the chart into dist/, as an archive and as an artifact of a registry (OCI): REGISTRY=... of its images
	@$(BIN)/python -m release.chart dist

release: setup ## Write all that is given to others into dist/, with checksums; only the upload is left: DRAFT=1 without a date, IMAGES=podman
	@$(BIN)/python -m release $(if $(DRAFT),--draft) $(if $(IMAGES),--images $(IMAGES))

# A package that the index has no advisories of is an error, not a line that nobody reads.
scan: setup ## Look for known weaknesses of all packages that we are tested with; asks the package index for its advisories
	$(BIN)/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

cluster: setup ## Start a real Kubernetes on this machine (builds it first, once: some 15 minutes)
	@$(BIN)/python -m tests.cluster up

cluster-down: setup ## Take it down without a trace
	@$(BIN)/python -m tests.cluster down

cluster-images: setup ## Build the images, with podman where there is no Docker, and load them there
	@$(BIN)/python -m tests.cluster images

e2e: setup ## Test a real cluster, the one that KUBECONFIG names; images as make images calls them
	ONYX_TEST_KUBECONFIG="$${KUBECONFIG-$$HOME/.kube/config}" $(BIN)/python -m pytest tests/operator/contract
	$(BIN)/python -m pytest -o faulthandler_timeout=600 --durations=0 tests/e2e $(TESTS)

bench: setup ## Measure every figure that we quote, as ratios in one run
	$(BIN)/python -m benchmarks

clean: ## Remove what setup, tests and the demo have made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis bench-data examples/flights/data examples/flights/out examples/*/.onyx
