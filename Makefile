# Every target does its own set-up. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
export DELTA_CDC_HOME ?= $(CURDIR)/.cache/delta-cdc
# The provider's operators find their tools beside the interpreter; recipes do the same.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Where the environment forbids bytecode, each of the many processes would compile Airflow and PySpark anew.
export PYTHONDONTWRITEBYTECODE :=

# Test processes, each with a Spark session of its own; a file's tests stay together. The files come as they are
# collected, the dear ones first and unit tests last: else xdist begins with the files that have the most tests.
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

CODE := airflow_delta_cdc spark_jobs tests tools demo dags docker docs benchmarks
PRESENT = $(wildcard $(CODE))

.PHONY: help setup demo demo-postgres up test test-full mutants mutants-core simulate kills matrix lint types collect format bench jar wheel wheel-check release audit docs constraints clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv and resolve the Delta JARs; seconds once done
	@tools/setup.sh

demo: setup ## Run TPC-H orders and customers through a real Airflow and prove the result
	@$(BIN)/python -m demo run

demo-postgres: setup ## Follow a PostgreSQL under load into current tables and histories, and prove the result
	@$(BIN)/python -m demo postgres

up: setup ## Serve the example DAGs in the Airflow UI
	@$(BIN)/python -m demo up

test: setup ## Run the tests; arguments: ARGS="-k seal", ARGS=--cov for branch coverage, JOBS=1
	@$(PYTEST) -m "not slow" $(ARGS)

test-full: setup ## Run all tests, the slow ones too, with branch coverage, then the mutants
	@$(PYTEST) --cov $(ARGS)
	@$(MAKE) --no-print-directory mutants ARGS=

mutants: setup ## Break each rule, and the pure core at random places, and require that tests fail
	@$(BIN)/python -m tools.mutants --jobs $(JOBS) $(ARGS)
	@$(if $(ARGS),,$(BIN)/python -m tools.mutants_core --jobs $(JOBS))

mutants-core: setup ## Change the pure core at every place; hours. ARGS="--number 200 --seed 1" draws some
	@$(BIN)/python -m tools.mutants_core --jobs $(JOBS) $(or $(ARGS),--all)

simulate: setup ## Play random faults over planner, loop and logs, without a JVM; ARGS="--seed 5 --schedules 1000"
	@PYTHONPATH=spark_jobs $(BIN)/python -m tests.simulator $(or $(ARGS),--schedules 10000000 --state .cache/simulator.json)

kills: setup ## Kill runs at random moments and check what the next ones make of it; ARGS="--kills 20 --only erase"
	@PYTHONPATH=spark_jobs $(BIN)/python -m tests.kills $(ARGS)

matrix: setup ## Run the cases of each supported version of Spark, Delta and Airflow; ARGS="--only 'Spark 4.1'"
	@PYTHONPATH=spark_jobs $(BIN)/python -m tools.matrix --write $(ARGS)

lint: setup ## Check style, complexity, words, and what the engine must not touch
	@$(BIN)/ruff format --check $(PRESENT)
	@$(BIN)/ruff check $(PRESENT)
	@$(BIN)/python tools/lint_engine.py
	@$(BIN)/python tools/lint_words.py

types: setup ## Check types
	@$(BIN)/mypy

collect: setup ## Import all tests, without running one; test processes find them compiled
	@$(BIN)/python -m pytest --collect-only -qq >.cache/collected || { cat .cache/collected; exit 1; }

format: setup ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix --quiet $(PRESENT) || true
	@$(BIN)/ruff format $(PRESENT)

bench: setup ## Run the benchmarks
	@for file in $$(grep -l __main__ benchmarks/*.py); do $(BIN)/python $$file $(ARGS) || exit 1; done

jar: setup ## Compile java/ into the JAR of the log stores; needs a JDK
	@$(BIN)/python -m tools.jar

wheel: setup ## Build wheel and source distribution of the last commit into dist/; needs a JDK
	@$(BIN)/python -m tools.release --wheel

release: setup ## The same, with an SBOM and a table of licences; prints the hashes
	@$(BIN)/python -m tools.release

audit: ## Ask for known vulnerabilities of every pinned version, JARs too after `make release`; needs a network
	@tools/audit.sh

docs: setup ## Build the documentation site, with search, into build/docs/html; ARGS=--external fetches other sites
	@.cache/docs/bin/python -c '' 2>/dev/null || $(BIN)/python -m venv --clear .cache/docs
	@.cache/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.txt
	@.cache/docs/bin/python -m tools.site $(ARGS)

wheel-check: setup ## Run the demo from the wheel, in an environment without the checkout
	@tools/wheel_check.sh

constraints: setup ## Pin the newest versions that pyproject.toml allows, for the image too
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
		--no-header --no-emit-index-url --group dev pyproject.toml --output-file constraints.txt
	@$(BIN)/uv pip compile --quiet --python-version 3.12 --python-platform linux --generate-hashes --no-header \
		--no-emit-index-url --constraint constraints.txt pyproject.toml docker/requirements.in \
		--output-file docker/requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes --no-header \
		--no-emit-index-url --constraint constraints.txt --group docs --output-file docs/requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes --no-header \
		--no-emit-index-url --constraint constraints.txt --group release \
		--output-file tools/release-requirements.txt

clean: ## Remove everything that is made, .venv included
	rm -rf .venv .cache .demo .airflow dist build
