# Everything a developer does here. `make demo` and `make test` do all of their own set-up.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests run in a process per core, each with one thread; those that wait for programs, in two.
PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal

.PHONY: help setup demo sweep-demo factor-demo study-demo closed-loop-demo test test-fast test-all test-nightly tests checks fuzz coverage lint format \
	types proto docs docs-serve gpu-check monitoring-rules release-check bench train-demo clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sort | \
		awk 'BEGIN {FS = ":.*?## "}; {printf "  make %-13s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Installing into $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[lab,server,postgres,tracing,hdf5,lance,video,dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--constraint constraints.txt stable-worldmodel
	@touch $@

setup: $(READY) ## Install everything into .venv, which every other target does as well

demo: $(READY) ## Judge three trained world models over gRPC: robust, fragile, collapsed
	@$(BIN)/python examples/demo.py

sweep-demo: $(READY) ## Score ten checkpoints under five shifts and write an HTML report (minutes)
	@$(BIN)/python examples/sweep_demo.py

factor-demo: $(READY) ## Tell which factor, light or colour or texture, breaks which checkpoint (minutes)
	@$(BIN)/python examples/factor_demo.py

study-demo: $(READY) ## Run the paper's studies on the demo's checkpoints (minutes)
	@$(BIN)/python examples/study_demo.py

closed-loop-demo: $(READY) ## Plan through ten checkpoints, and set success beside IR and SR (minutes)
	@$(BIN)/python examples/closed_loop_demo.py

# Lint, types and docs are checked beside the tests; their words come last, where they are seen.
BESIDE = mkdir -p build; $(MAKE) --no-print-directory --keep-going --jobs 2 tests checks; \
	code=$$?; cat build/checks.log; exit $$code

test: export TIERS := process and not slow and not nightly
test: $(READY) ## Lint, type-check, build the docs, run the unit and process tests
	@$(BESIDE)

test-all: export TIERS := not unit and not nightly
test-all: $(READY) ## Everything that test does, and the slow tests; COVERAGE=--cov for unmet lines
	@$(BESIDE)

test-fast: $(READY) ## Run the unit tests alone (a minute)
	@$(PYTEST) -m unit

tests: $(READY) ## Run the unit tests, then those of TIERS
	@$(PYTEST) -m unit $(COVERAGE); unit=$$?; $(PYTEST) -m "$(TIERS)" && exit $$unit

checks: $(READY) ## Lint, type-check and build the docs, into build/checks.log
	@$(MAKE) --no-print-directory --keep-going lint types docs >build/checks.log 2>&1

test-nightly: $(READY) ## The series at full length, training, and other toolchains (an hour)
	@$(PYTEST) -m nightly

fuzz: $(READY) ## Send 100,000 hostile requests to a server (a quarter of an hour); SEED=7 for others
	@$(BIN)/python tests/hostile/fuzzer.py --seed $(or $(SEED),1)

coverage: $(READY) ## Run the unit tests and show which branches they miss
	@$(PYTEST) -m unit --cov --cov-report term-missing:skip-covered

lint: $(READY) ## ruff, the import rules, the wire contract and its generated code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python proto/generate.py --check
	@$(BIN)/python proto/lint.py

types: $(READY) ## mypy --strict on server and client
	@$(BIN)/mypy

format: $(READY) ## Format the code
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

proto: $(READY) ## Generate the code of the wire contract
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python proto/generate.py

docs: $(READY) ## Build the documentation site, strictly, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(READY) ## Serve the documentation site while you write
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

monitoring-rules: $(READY) ## Write the alerts' rules for the Prometheus operator from rules.yml
	@$(BIN)/python deploy/prometheus_rule.py

gpu-check: $(READY) ## Try a device (DEVICE=cuda): doctor, agreement tests, benchmark; JSON in build/gpu-check
	@$(BIN)/python benchmarks/gpu_check.py --device $(or $(DEVICE),cuda)

release-check: $(READY) ## Build sdist and wheel, install them apart, and make a call between them
	@$(BIN)/python deploy/release_check.py

bench: $(READY) ## Measure (an hour, needs PostgreSQL; ONLY=idle,planning, OPTIONS=--full): figures of the docs
	@$(BIN)/python benchmarks/run_all.py --only "$(ONLY)" $(OPTIONS); code=$$?; \
		$(BIN)/python benchmarks/page.py --collect && exit $$code

train-demo: $(READY) ## Train the demo's checkpoints again (a few minutes)
	@$(BIN)/python examples/two_room/train.py

clean: ## Remove what was built, not the virtual environment
	@rm -rf build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
