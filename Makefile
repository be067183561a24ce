# Everything sets itself up: a virtual environment in .venv, Prometheus and Alertmanager in .tools where PATH has none.

PYTHON ?= python3
PYTHON_3_11 ?= $(shell python3.11 -c 'print("python3.11")' 2>/dev/null || echo $(PYTHON))
SCENARIO ?= hang
STALL_SECONDS ?= 15
KEEP ?=
# Tests of one file share what they start, so a file stays with one worker.
PYTEST_ARGS ?= -n 2 --dist loadfile
# Two thirds of the time of all tests are spent waiting: more workers than cores, and those that wait longest first.
TEST_ARGS ?= -n 8 --dist loadfile --no-loadscope-reorder
FAST_TESTS ?= tests/unit tests/docs tests/contracts tests/compat
# The distributions of Debian with the oldest and the newest Prometheus and Alertmanager that are supported.
TOOLS_SUITES ?= bookworm sid
# The other scenarios differ in what the library records, whatever the version of Prometheus.
COMPAT_DEMO := tests/e2e/test_demo.py::test_the_outcome_is_the_promised_one_and_nothing_is_left_behind[hang]
# What `make test-nightly` runs, one after the other.
NIGHTLY ?= test-rest test-compat test-ray-oldest test-pythons coverage

SHELL := bash
# The tests start some thousand processes: each would compile the project anew.
unexport PYTHONDONTWRITEBYTECODE

# Another environment for another Python: make PYTHON=python3.12 VENV=.venv-3.12 test-fast
VENV ?= .venv
BIN := $(VENV)/bin
.DEFAULT_GOAL := help

.PHONY: help setup demo test test-fast test-nightly test-rest test-pythons test-compat test-ray-oldest coverage \
  test-integrations bench lint format docs contracts site golden lock lock-integrations clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make demo SCENARIO=hang|crash|kill9|oom|nan|none DRIVER=local|slurm|ray STALL_SECONDS=15 KEEP=1"

demo: $(VENV)/ready ## Break a real training and watch it being noticed, reported and brought back
	@SCENARIO='$(SCENARIO)' DRIVER='$(DRIVER)' STALL_SECONDS='$(STALL_SECONDS)' KEEP='$(KEEP)' $(BIN)/python examples/demo/demo.py

test: $(VENV)/ready ## Run what a change breaks in ordinary ways, with real Prometheus, Alertmanager, SLURM and Ray
	@# Compiles the tests once, half of them on each core: the workers begin together, and each would compile them all.
	@$(BIN)/python -m pytest --collect-only --quiet tests/unit > /dev/null & \
	  $(BIN)/python -m pytest --collect-only --quiet tests --ignore tests/unit > /dev/null; wait
	$(BIN)/python -m pytest -m "not nightly" $(TEST_ARGS)

test-fast: $(VENV)/ready ## Run the tests that start no process and no service: under two minutes
	$(BIN)/python -m pytest $(FAST_TESTS) -m "not process and not tools and not slurm and not ray and not e2e and not slow and not nightly" $(PYTEST_ARGS)

# All parts run, whatever the one before found.
test-nightly: ## Run the rest: hostile input in full, every crash point, broken rules, other versions of everything
	@failed=""; for part in $(NIGHTLY); do \
	  echo "== make $$part: $$(date -u +%H:%M:%S)"; $(MAKE) --no-print-directory $$part </dev/null || failed="$$failed $$part"; \
	done; [ -z "$$failed" ] || { echo "make: these fail:$$failed" >&2; exit 1; }

test-rest: $(VENV)/ready ## Run the tests that `make test` leaves out
	$(BIN)/python -m pytest -m nightly $(TEST_ARGS)

# Branches of decisions, scanner and record are covered to 95 %; the rest is shown, not judged.
coverage: $(VENV)/ready ## Measure which branches the unit tests cover; fail below 95 % of decisions, scanner and record
	@rm -f .coverage .coverage.*
	$(BIN)/python -m pytest tests/unit tests/docs tests/compat -m "not nightly and not slurm and not ray" --cov --cov-report= $(PYTEST_ARGS)
	@.ci/coverage $(BIN)/coverage

# Each in an environment of its own, .venv-3.10 to .venv-3.13; all of them run, whatever the one before found.
test-pythons: ## Run the fast tests with every Python from 3.10 to 3.13 that is here (PYTHONS=ends: the oldest and the newest)
	@pythons="$$(.ci/pythons $(PYTHONS))" || exit; failed=""; \
	while read -r version python; do \
	  echo "== Python $$version"; \
	  $(MAKE) --no-print-directory PYTHON="$$python" VENV=".venv-$$version" test-fast </dev/null || failed="$$failed $$version"; \
	done <<< "$$pythons"; \
	[ -z "$$failed" ] || { echo "make: the fast tests fail with Python$$failed" >&2; exit 1; }

# What runs neither a Prometheus nor an Alertmanager is the same with any version of theirs.
test-compat: $(VENV)/ready ## Repeat rule, route and end-to-end tests with the oldest and the newest Prometheus and Alertmanager
	@failed=""; for suite in $(TOOLS_SUITES); do \
	  $(BIN)/python -m trainwarden.stack.binaries --suite $$suite && \
	  TRAINWARDEN_TOOLS_DIR=$(CURDIR)/.tools/$$suite $(BIN)/python -m pytest -m "tools and not nightly" $(TEST_ARGS) \
	    tests/rules tests/incidents tests/alertmanager tests/integration/rules '$(COMPAT_DEMO)' || failed="$$failed $$suite"; \
	done; [ -z "$$failed" ] || { echo "make: the tests fail with the tools of$$failed" >&2; exit 1; }

# One head at a time: each takes a gigabyte of memory, and a core while it starts.
test-ray-oldest: $(VENV)/ready ## Repeat the tests with a real Ray, the long ones too, with the oldest that is supported
	TRAINWARDEN_RAY=oldest $(BIN)/python -m pytest tests/ray

test-integrations: .venv-integrations/ready ## Run the tests with PyTorch, Transformers and Lightning, on the CPU
	.venv-integrations/bin/python -m pytest tests/integrations

bench: $(VENV)/ready ## Measure what the library and the log reader cost, and write it into docs/benchmarks.md
	$(BIN)/python -m benchmarks --write docs/benchmarks.md

lint: $(VENV)/ready ## Check style, imports and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy
	@# What builds the dashboards is made for Python 3.11 on.
	$(BIN)/mypy --python-version 3.11 grafana/source

format: $(VENV)/ready ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/ready ## Make the generated pages and the generated module of patterns again
	$(BIN)/python -m trainwarden_exporter.docs metrics > docs/metrics.md
	$(BIN)/python -m trainwarden_exporter.docs flags > docs/exporter-flags.md
	$(BIN)/python -m trainwarden.signals.listing > docs/signal-list.md
	$(BIN)/python -m trainwarden.signals.pattern_module
	$(BIN)/python -m trainwarden.failures.document > docs/failures.md
	$(BIN)/python -m trainwarden.rules.document docs/alerts.md docs/rules.md
	$(BIN)/python -m tests.rules.scenarios rules/tests
	$(BIN)/python -m tests.incidents.document > docs/detection.md
	$(BIN)/python -m grafana.source

contracts: $(VENV)/ready ## Write the contracts anew as text; read the diff, and tell users of it in CHANGELOG.md
	$(BIN)/python -m tests.contracts

site: $(VENV)/ready ## Build the documentation site in build/site; fail on a link or an anchor that leads nowhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

golden: $(VENV)/ready ## Write the pages anew that the exporter is to print of whole nodes; look at what changed
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q tests/unit/exporter/test_golden_page.py tests/integration/exporter/nodes

lock: $(VENV)/ready ## Resolve the development dependencies again
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.10 --extra stack --group dev --upgrade --quiet \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes pyproject.toml -o requirements/dev.txt
	for name in ray ray-oldest ray-train; do \
	  $(BIN)/uv pip compile --universal --python-version 3.10 --upgrade --quiet --no-header --no-annotate --no-emit-index-url \
	    --no-emit-find-links --generate-hashes requirements/$$name.in -o requirements/$$name.txt || exit; \
	done

# Without hashes: which build of PyTorch this version is, with CUDA or without, depends on where a machine gets its packages.
lock-integrations: ## Resolve the dependencies of the integration tests again
	$(PYTHON_3_11) -m venv --clear .venv-integrations
	.venv-integrations/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/integrations.in
	.venv-integrations/bin/python -m pip freeze | sed 's/+cpu$$//' > requirements/integrations.txt

setup: $(VENV)/ready ## Make the environment

$(VENV)/ready: pyproject.toml requirements/dev.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing: install Python 3.10 or newer" >&2; exit 2; }
	@$(PYTHON) -c pass 2>/dev/null || \
	  { echo "make: $(PYTHON) is on PATH but does not run; it says: $$($(PYTHON) -c pass 2>&1 | head -n 1)" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "make: $(PYTHON) is older than 3.10; name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "make: $(PYTHON) has no venv: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Apart from the other one: a gigabyte, and a build of PyTorch that is there for this Python.
.venv-integrations/ready: requirements/integrations.txt
	@$(PYTHON_3_11) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || \
	  { echo "make: the integration tests need Python 3.11 with venv; name it: make PYTHON_3_11=... $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON_3_11) -m venv --clear .venv-integrations
	.venv-integrations/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/integrations.txt
	.venv-integrations/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

clean: ## Remove everything that was made here
	rm -rf .venv .venv-* .tools .state .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage* dist build
