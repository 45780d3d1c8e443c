# Every command of this project. They work from any folder (`make -C path/to/lakepact test`), any number of times, and
# beside one another. Settings: PYTHON (which Python makes the environment), JOBS (test processes; they often wait, so
# six are right for two cores).

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Hundreds of processes begin in a run of the tests: none should compile again what another has, whatever is set here.
unexport PYTHONDONTWRITEBYTECODE
SHELL := /bin/sh

PYTHON ?= python3
JOBS ?= 6
SIM_SEEDS ?= 1250

ROOT := $(dir $(lastword $(MAKEFILE_LIST)))
IN := cd "$(ROOT)" &&
RUN := .venv/bin/python

.PHONY: help setup demo test verify check sim rck bench serve proto pytest

help: ## print this list
	@$(IN) sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1 \2/p' Makefile | awk '{ printf "  make %-7s ", $$2; $$1 = $$2 = ""; sub(/^ +/, ""); print }'

setup: ## make .venv with the pinned versions (quick when there is nothing to do)
	@command -v $(PYTHON) > /dev/null || { echo "There is no $(PYTHON) here. Lakepact needs Python 3.11 or newer: make setup PYTHON=..." >&2; exit 1; }
	@$(IN) $(PYTHON) tools/setup_venv.py

demo: setup ## a shop on Spark: a pipeline publishes five tables at once, while checks fail and the server is killed
	@$(IN) $(RUN) -m lakepact demo

test: check ## every claim once: static checks, unit, property, conformance, simulation, crash, spec, acceptance
	@$(MAKE) -f "$(ROOT)Makefile" pytest

verify: export LAKEPACT_LONG = 1
verify: SIM_SEEDS = 20000
verify: check ## everything in `test` at length, then the benchmark
	@$(MAKE) -f "$(ROOT)Makefile" pytest SIM_SEEDS=$(SIM_SEEDS)
	@$(MAKE) -f "$(ROOT)Makefile" bench

check: setup ## ruff, mypy strict, import contracts
	@$(IN) $(RUN) -m ruff check .
	@$(IN) $(RUN) -m ruff format --check .
	@$(IN) $(RUN) -m mypy
	@$(IN) .venv/bin/lint-imports --no-logo

sim: setup ## simulate; SEEDS=n, START=n and MINUTES=n say how much, SEED=n replays one
	@$(IN) $(RUN) -m tests.sim --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(START),--start $(START)) $(if $(MINUTES),--minutes $(MINUTES))

rck: export LAKEPACT_LONG = 1
rck: setup ## Iceberg's REST Compatibility Kit against the server, on SQLite, PostgreSQL and files
	@$(IN) $(RUN) -m pytest tests/interop/test_rck.py $(PYTEST_ARGS)

bench: setup ## print rounds, latencies and throughput as ratios
	@$(IN) $(RUN) -m tests.bench

serve: setup ## run the catalog server
	@$(IN) $(RUN) -m lakepact serve

proto: setup
	@$(IN) $(RUN) tools/generate_proto.py

# A JVM belongs to its process, and takes long to get warm: these share one, and those, which change the settings of its
# session or look at all of its warehouse, have one each. So has the company that browsers look at, with its ten thousand
# tables: it is founded once. Those that take longest come first.
suites = $(patsubst %,tests/interop/test_%.py,$(1))
WITH_ONE_SPARK := $(call suites,audit_spark authentication java_transaction overlay_engines spark spark_conflicts)
WITH_THEIR_OWN := $(call suites,projections) tests/acceptance/test_ui_browser.py $(call suites,pipelines pipeline_reads pipeline_kills \
	spark_transactions spark_requests spark_credentials spark_delta delta_log_spark pipeline_guides mirrors orphans fold_against_java \
	pipeline_projects pipeline_positions pipeline_command spark_tls)

pytest: setup
	@$(IN) LAKEPACT_SIM_SEEDS=$(SIM_SEEDS) $(RUN) -m pytest -n $(JOBS) --dist worksteal \
		$(if $(PYTEST_ARGS),$(PYTEST_ARGS),$(addprefix --ignore=,$(WITH_ONE_SPARK) $(WITH_THEIR_OWN)))
	@$(if $(PYTEST_ARGS),,$(IN) printf '%s\n' '$(WITH_ONE_SPARK)' $(WITH_THEIR_OWN) | xargs -L 1 -P 2 $(RUN) -m pytest)
