# Every target makes its environment first: a virtual environment with the locked packages. It needs Python 3.11
# or newer with venv, a network or a package cache, and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CASES  ?=
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help env demo quick test test-all check docs house audit sbom matrix bench chaos fuzz simulate golden lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

env: $(STAMP) ## make the virtual environment

$(STAMP): requirements.lock pyproject.toml
	@echo "== environment: $(VENV) (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "== packages of requirements.lock"
	@$(BIN)/python -m pip install --require-hashes -r requirements.lock
	@echo "== tailrace itself"
	@$(BIN)/python -m pip install --no-deps --editable .
	@touch $(STAMP)

demo: $(STAMP) ## a PostgreSQL, a workload and its change events, here and now
	@$(BIN)/tailrace demo

quick: $(STAMP) ## the fast tests, without servers and JVM, within a minute
	@$(BIN)/python -m tests.lanes --quick

test: $(STAMP) ## all tests, in a quarter of an hour: make test [ARGS='--part golden --postgres DSN']
	@$(BIN)/python -m tests.lanes $(ARGS)

test-all: $(STAMP) ## all tests at their full size, hours in parts: make test-all [ARGS='--part golden --again']
	@$(BIN)/python -m tests.lanes --full $(ARGS)

check: $(STAMP) ## lint, format, types, layers, audit, bill of materials, the documentation's links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/architecture tests/chaos tests/contract tests/golden tests/servers tests/simulation tests/spark tests/conftest.py tests/durations.py tests/extent.py tests/kernels.py tests/lanes.py tests/pages.py tests/waiting.py tests/fix_capture.py tests/fix_db2.py tests/fix_invariant.py tests/fix_kafka.py tests/fix_mongodb.py tests/fix_mysql.py tests/fix_nats.py tests/fix_positions.py tests/fix_postgres.py tests/fix_query.py tests/fix_redis.py tests/fix_spark.py tdsserver tools/house tools/matrix tools/pictures tools/record tools/supply bench
	$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tools.supply.audit --seconds 20
	@$(BIN)/python -m tools.supply.bill
	@$(BIN)/zensical build --strict --clean

docs: $(STAMP) ## serve this documentation, and build it again when a page changes: make docs [ARGS='-a HOST:PORT']
	@$(BIN)/zensical serve $(ARGS)

house: $(STAMP) ## facts about sources and documentation: importers, sizes, names, the way of an UPDATE, long sentences: make house [ARGS=--all]
	@$(BIN)/python -m tools.house $(ARGS)

audit: $(STAMP) ## known vulnerabilities of what is pinned: make audit [ARGS='--data OSV.zip --strict']
	@$(BIN)/python -m tools.supply.audit $(ARGS)

sbom: $(STAMP) ## the bill of materials (CycloneDX): make sbom [ARGS=FILE]
	@$(BIN)/python -m tools.supply.bill $(ARGS)

matrix: $(STAMP) ## which versions of Spark and Java run what, into docs/start/spark.md: make matrix [ARGS='--only 4.3.0']
	@$(BIN)/python -m tools.matrix $(ARGS)

bench: $(STAMP) ## measure throughput and lag: make bench [ARGS='--rows 50000']
	@$(BIN)/python -m bench $(ARGS)

chaos: $(STAMP) ## kill the parts of a pipeline: make chaos [ARGS='--kills 200 --seed N']
	@$(BIN)/python -m tests.chaos $(ARGS)

fuzz: $(STAMP) ## feed what reads other people's bytes with damage: make fuzz [ARGS='--minutes 10 --only NAME --seed N']
	@$(BIN)/python -m tests.fuzz $(ARGS)

simulate: $(STAMP) ## run a planner through simulated histories: make simulate [ARGS='--histories 100000 --seed N']
	@$(BIN)/python -m tests.simulation $(ARGS)

golden: $(STAMP) ## compare with the recordings of Debezium: make golden [CASES=DIR] [ARGS=--spark]
	@$(BIN)/python -m tests.golden.runner $(CASES) $(ARGS)

lock: $(STAMP) ## write requirements.lock again from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
	  --no-header --upgrade --output-file requirements.lock

clean: ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build
