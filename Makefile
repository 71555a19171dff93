# `make run` serves relayweb; `make test` runs everything that is checked. Both need Python 3.11 or newer, nothing else.
PYTHON ?= python3
VENV   ?= .venv
HOST   ?= 127.0.0.1
PORT   ?= 8000
ARGS   ?=
MINUTES ?= 30
PIP     = $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet

.PHONY: run test test-postgres test-pair lint bench soak system clean audit fuzz

run: $(VENV)/.installed
	@exec $(VENV)/bin/relayweb serve --host $(HOST) --port $(PORT) $(ARGS)

# One process more than cores: many tests wait for a server.
SPREAD = --numprocesses $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --dist loadfile --no-loadscope-reorder

# Files spread over the cores; the pages after them, because Playwright's event loop leaves none to asyncio's tests.
test: system lint
	$(VENV)/bin/python -X dev -m pytest --quiet $(SPREAD) -m "not browser" $(ARGS)
	$(VENV)/bin/python -X dev -m pytest --quiet $(SPREAD) -m browser $(ARGS)
	@$(MAKE) --no-print-directory test-postgres
	@$(MAKE) --no-print-directory test-pair PAIR_TESTS="$(PAIR_SOME)"

# Tests of what speaks to the database on a PostgreSQL of their own; POSTGRES_TESTS names others, such as tests/ingest.
POSTGRES_TESTS ?= tests/recording/projection tests/recording/reading tests/recording/store tests/recording/upkeep \
	tests/recording/writing $(wildcard tests/recording/test_*.py) tests/recording/conventions/test_details.py \
	tests/recording/conventions/test_pricing.py tests/recording/conventions/test_conventions.py \
	tests/gateway/test_recording.py tests/gateway/test_turns.py tests/gateway/test_sharing.py \
	tests/api tests/ingest/test_doors.py tests/ingest/test_export.py
test-postgres: system $(VENV)/.installed-dev
	$(VENV)/bin/python -m tests.scale.engines $(VENV)/bin/python -m pytest --quiet $(SPREAD) $(POSTGRES_TESTS)

# Tests of whole journeys, served by two processes on PostgreSQL and Redis behind a proxy that takes them in turn.
PAIR_SOME = tests/browser/test_pair.py tests/browser/test_first_minute.py tests/gateway/test_served_record.py
PAIR_TESTS ?= tests/browser tests/journeys tests/intercepts/test_in_a_server.py tests/security/test_browsers.py \
	tests/gateway/test_bytes.py tests/gateway/test_sdks.py tests/gateway/test_served_record.py tests/gateway/test_robustness.py \
	tests/ingest/test_exporters.py tests/ui/test_snippets_run.py
test-pair: system $(VENV)/.installed-dev
	$(VENV)/bin/python -m tests.scale.engines --pair $(VENV)/bin/python -m pytest --quiet $(PAIR_TESTS)

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	@# B608 is any SQL that is put together. Ours is, of names of our tables and columns; values go beside it.
	$(VENV)/bin/bandit --quiet --recursive --severity-level medium --skip B608 --baseline .ci/bandit-reviewed.json adapters relayweb
	$(VENV)/bin/djade --target-version 5.2 --check $$(git ls-files 'templates/*.html')

# Fuzzing guided by coverage, for SECONDS. atheris has no wheel for every Python, so it is installed for this alone.
SECONDS ?= 60
fuzz: $(VENV)/.installed-dev
	@$(PIP) atheris
	$(VENV)/bin/python tests/security/fuzz.py -max_total_time=$(SECONDS) -max_len=2000

# Known faults of what is installed; asks a service on the network, and says so where that does not answer.
audit: $(VENV)/.installed-dev
	$(VENV)/bin/python .ci/audit.py

bench: $(VENV)/.installed-dev
	$(VENV)/bin/python -m bench $(ARGS)

# The long forms: thousands of streams in any order, fifty kills under load, all journeys on two processes, a long run
# with faults at its end, and faults under two processes on PostgreSQL and Redis. Each line may be run alone.
soak: $(VENV)/.installed-dev
	RELAYWEB_ORDER_STREAMS=5000 $(VENV)/bin/python -m pytest -o faulthandler_timeout=7200 tests/recording/test_any_order.py tests/recording/writing/test_several_recorders.py
	RELAYWEB_CRASH_KILLS=50 $(VENV)/bin/python -m pytest -o faulthandler_timeout=7200 tests/journeys/test_crash.py
	RELAYWEB_CRASH_KILLS=20 $(MAKE) --no-print-directory test-pair
	$(VENV)/bin/python -m bench.soak --minutes $(MINUTES) --write docs/reliability.md $(ARGS)
	$(VENV)/bin/python -m bench.faults --rounds 5 --write docs/reliability.md

# Chromium for the pages' tests, PostgreSQL and Redis for those of many processes: from Debian's packages, where we may.
system:
	@sh .ci/system-packages

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "relayweb needs Python 3.11 or newer; name one with make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

COMPILED = hatch_build.py relayweb/recording/kernels/compiled.pyx
$(VENV)/.installed: pyproject.toml $(COMPILED) | $(VENV)/bin/python
	@echo "installing relayweb into $(VENV), once"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(COMPILED) | $(VENV)/bin/python
	@echo "installing relayweb and what its tests need into $(VENV), once"
	@$(PIP) "pip>=25.1"
	@$(PIP) --editable '.[postgres,redis]' --group dev
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) relayweb/recording/kernels/compiled.*.so
