# Everything a person does with this repository. On a fresh machine with python3 and make, any target sets itself up first.

PYTHON ?= python3
BIN := .venv/bin
TIERS := unit contract databases simulation spark acceptance
PYTEST := $(BIN)/python -m pytest
# Folders that come later must not fail the tiers that are there.
FOLDERS = $(wildcard $(addprefix tests/,$(TIERS)))

.DEFAULT_GOAL := help
.PHONY: help setup venv testbed demo test unit one check format bench soak lock docs screenshots clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## Make .venv with the locked packages and tidegate in it, and find or install Java
	@$(PYTHON) scripts/setup.py

venv: # The set-up without Java, for what starts no JVM
	@$(PYTHON) scripts/setup.py --without-java

testbed: # The set-up, and the servers that the tests start for themselves: PostgreSQL, MariaDB, etcd
	@$(PYTHON) scripts/setup.py --with-servers

demo: setup ## A streaming job, killed with -9 in the middle, resumed, and its rows counted
	@$(BIN)/python scripts/demo.py

test: testbed ## All tests but the soak: unit, contract, databases, simulation, spark, acceptance (ARGS="-k words")
	$(BIN)/python scripts/test.py $(FOLDERS) $(ARGS)

unit: venv ## The unit tests, without Java and servers: about three minutes (ARGS="-k words")
	$(PYTEST) -q -m "not soak" tests/unit $(ARGS)

one: venv ## Some tests, without provisioning servers: make one T=tests/unit/config/test_env_options.py
	$(PYTEST) -m "not soak" $(T) $(ARGS)

check: venv ## Format, lint, types, layers, tidiness: what must hold before a commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports
	$(PYTEST) -q tests/tidy

format: venv ## Format the code and repair what can be repaired by machine
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: testbed ## Measure against raw PySpark and others, side by side in one run (ARGS go to it)
	$(BIN)/python -m benchmarks $(ARGS)

soak: testbed ## The long tests: every failpoint on Spark, the oldest and the newest Spark
	TIDEGATE_TEST_SEED=$${TIDEGATE_TEST_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')} $(PYTEST) -m soak --timeout=0 $(FOLDERS) $(ARGS)

screenshots: testbed ## Take the pictures of the web pages anew (docs/pictures)
	$(BIN)/python scripts/screenshots.py

docs: venv ## Write the generated parts of the documentation anew
	$(BIN)/python scripts/docs.py

lock: ## Resolve requirements.lock anew from pyproject.toml (ARGS=--upgrade for newer versions)
	$(PYTHON) scripts/lock.py $(ARGS)

clean: ## Remove what was made here, except .venv
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
