# Everything a developer does here. Each target installs what it runs on.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR: # a stamp of what was not installed whole
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What is installed: what the demos run on, the studies, linters, pages, or everything.
DEMO := $(VENV)/.demo
STUDIES := $(VENV)/.studies
LINT := $(VENV)/.lint
DOCS := $(VENV)/.docs
READY := $(VENV)/.ready
SERVED := '.[server,lab]'
PAGES := '.[lab,docs]'
# The blocking client, made of the asyncio one.
BLOCKING := client/acpc_client/sync/client.py
ALL := '.[lab,server,postgres,tracing,hdf5,lance,tsne,hub,lint,docs,dev]'
SAID := torch, gRPC and some 60 packages that the demo runs on (half a minute from pip's cache)
# Tests run in two processes per core, each with one thread, since many wait for programs; unit tests,
# which now and then leave a core idle, in three of two cores. A file's tests stay in one process,
# which starts their server once; the longest files begin first (tests/conftest.py).
RUN_TESTS := $(BIN)/python -m pytest --maxprocesses 8
PYTEST := $(RUN_TESTS) --dist loadfile --no-loadscope-reorder --numprocesses logical
UNIT_TESTS := $(RUN_TESTS) --dist worksteal --numprocesses $(shell expr 3 '*' $$(getconf _NPROCESSORS_ONLN) / 2) -m unit

# Modules are compiled once, not by every program that a test starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo import-demo sweep-demo study-demo closed-loop-demo test test-fast test-all test-nightly tests checks fuzz coverage lint format \
	types proto docs docs-serve gpu-check monitoring-rules release-check bench train-demo clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sort | \
		awk 'BEGIN {FS = ":.*?## "}; {printf "  make %-16s %s\n", $$1, $$2}'

# $(call add,WHAT,PACKAGES) adds what a target runs on to the one environment, and its stamp; nothing
# where $(READY) has installed everything. Modules are compiled when they are first imported. A uv in
# the environment installs faster; it does not read pip's settings.
INSTALL = $(if $(wildcard $(BIN)/uv),$(BIN)/uv pip install --python $(BIN)/python,$(BIN)/python \
	-m pip install --no-compile --disable-pip-version-check) --quiet --constraint constraints.txt
define add
@test $(READY) -nt pyproject.toml -a $(READY) -nt constraints.txt || { \
	test -x $(BIN)/pip || { $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }; \
	echo "Making a virtual environment, $(VENV)"; $(PYTHON) -m venv $(VENV); } && \
	echo "Installing $(1) into $(VENV)" && $(INSTALL) --editable $(2); }
@touch $@
endef

$(BLOCKING): client/unasync.py $(wildcard client/acpc_client/aio/*.py)
	@$(PYTHON) client/unasync.py && touch $@

$(READY): pyproject.toml constraints.txt | $(BLOCKING)
	$(call add,everything that tests and tools use (minutes),$(ALL))
	@$(INSTALL) --no-deps stable-worldmodel

$(DEMO): pyproject.toml constraints.txt | $(BLOCKING)
	$(call add,$(SAID),$(SERVED))

$(STUDIES): $(DEMO)
	$(call add,what the studies use besides: scikit-learn,'.[tsne]')

$(LINT): pyproject.toml constraints.txt | $(BLOCKING)
	$(call add,linters and code generators,'.[lint]')

$(DOCS): pyproject.toml constraints.txt | $(BLOCKING)
	$(call add,what builds the pages,$(PAGES))

setup: $(READY) ## Install everything into .venv; other targets install what they need

demo: $(DEMO) ## Judge three trained world models over gRPC: robust, fragile, collapsed
	@$(BIN)/python examples/demo.py

import-demo: $(DEMO) ## Import a training run of the paper's layout, and score its epochs
	@$(BIN)/python examples/import_demo.py

sweep-demo: $(DEMO) ## Score ten checkpoints under eight everyday changes and write an HTML report (minutes)
	@$(BIN)/python examples/sweep_demo.py

study-demo: $(STUDIES) ## Run the paper's studies on the demo's checkpoints (minutes)
	@$(BIN)/python examples/study_demo.py

closed-loop-demo: $(DEMO) ## Plan through ten checkpoints, and set success beside IR and SR (minutes)
	@$(BIN)/python examples/closed_loop_demo.py

# Lint, types and docs are checked beside the tests; their words come last, where they are seen.
BESIDE = mkdir -p build; $(MAKE) --no-print-directory --keep-going --jobs 2 tests checks; \
	code=$$?; cat build/checks.log; exit $$code

test: export TIERS := not slow and not nightly
test: $(READY) ## Lint, type-check, build the docs, run the unit and process tests
	@$(BESIDE)

test-all: export TIERS := not nightly
test-all: $(READY) ## Everything that test does, and the slow tests; COVERAGE=--cov for unmet lines
	@$(BESIDE)

test-fast: $(READY) ## Run the unit tests alone (a minute)
	@$(UNIT_TESTS)

tests: $(READY) ## Run the tests of TIERS
	@$(PYTEST) -m "$(TIERS)" $(COVERAGE)

checks: $(READY) ## Lint, type-check and build the docs, into build/checks.log
	@$(MAKE) --no-print-directory --keep-going lint types docs >build/checks.log 2>&1

test-nightly: $(READY) ## The series at full length, training, and other toolchains (an hour)
	@$(PYTEST) -m nightly

fuzz: $(READY) ## Send 100,000 hostile requests to a server (a quarter of an hour); SEED=7 for others
	@$(BIN)/python tests/hostile/fuzzer.py --seed $(or $(SEED),1)

coverage: $(READY) ## Run the unit tests and show which branches they miss
	@$(PYTEST) -m unit --cov --cov-report term-missing:skip-covered

lint: $(LINT) ## ruff, the import rules, the wire contract and its generated code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python proto/generate.py --check
	@$(BIN)/python proto/lint.py

types: $(READY) ## mypy --strict on server and client
	@$(BIN)/mypy

format: $(LINT) ## Format the code
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

proto: $(LINT) ## Generate the code of the wire contract
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python proto/generate.py

docs: $(DOCS) ## Build the documentation site, strictly, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(DOCS) ## Serve the documentation site while you write
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

monitoring-rules: $(READY) ## Write the alerts' rules for the Prometheus operator from rules.yml
	@$(BIN)/python deploy/prometheus_rule.py

gpu-check: $(READY) ## Try a device (DEVICE=cuda): doctor, agreement tests, benchmark; JSON in build/gpu-check
	@$(BIN)/python benchmarks/gpu_check.py --device $(or $(DEVICE),cuda)

release-check: $(READY) ## Build sdist and wheel, install them apart, and make a call between them
	@$(BIN)/python deploy/release_check.py

bench: $(READY) ## Measure (an hour, needs PostgreSQL; ONLY=idle,planning, OPTIONS=--full); JSON in build/benchmarks
	@$(BIN)/python benchmarks/run_all.py --only "$(ONLY)" $(OPTIONS)

train-demo: $(DEMO) ## Train the demo's checkpoints again (a few minutes)
	@$(BIN)/python examples/two_room/train.py

clean: ## Remove what was built, not the virtual environment
	@rm -rf build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
