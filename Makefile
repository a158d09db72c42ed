# The same words that CI uses. Nothing here needs root or touches the machine outside this directory and the user's
# cache directory; everything is idempotent and works offline after the first run.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One stamp for each place: a virtual environment that was moved does not work.
STAMP := $(VENV)/.installed-$(firstword $(shell printf %s "$(CURDIR)" | cksum))

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow test-containers test-kerberos test-web test-all lint type fmt unit fuzz docs clean distclean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --copies is not needed: the stamp is older than setup.cfg when the dependencies changed.
$(STAMP): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed; set PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); } \
		|| { echo "could not create $(VENV); on Debian: apt install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	@echo "installing zkconsumer and what it needs into $(VENV) (about 700 MB, once)"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on --config-settings editable_mode=compat -e '.[dev]'
	@touch $@

demo: $(STAMP) ## the main job end to end on real servers and real data, verified
	@$(BIN)/zkconsumer demo

test: $(STAMP) ## unit, property and integration tests
	@$(BIN)/python -m zkconsumer.sandbox kafka-3.9.1
	@$(BIN)/pytest -n 2 -m 'not slow' tests/unit tests/property
	@$(BIN)/pytest -n 2 --dist loadfile -m 'not slow' tests/integration

test-slow: $(STAMP) ## what `make test` does not run: slow tests, old brokers, JVM interop, faults, Spark, the demo
	@$(BIN)/python -m zkconsumer.sandbox
	@$(BIN)/pytest -n 2 --dist loadfile -m slow tests/unit tests/property tests/integration
	@$(BIN)/pytest -n 2 --dist loadfile tests/brokers tests/interop tests/stress tests/chaos
	@$(BIN)/pytest tests/spark
	@$(BIN)/pytest tests/demo

# Apart from the others: its images are gigabytes to write, and its containers run until its end.
test-containers: $(STAMP) ## servers and consumers in containers, whose network is cut; needs a Docker engine
	@$(BIN)/pytest tests/containers

# With pytest alone these are skipped where something is missing; here that is a failure, which names it.
test-kerberos: $(STAMP) ## tests with a real KDC, after building gssapi; docs/security.md lists the requirements
	@$(BIN)/python -c 'import gssapi, kerberos' 2>/dev/null || $(BIN)/python -m pip install \
		--disable-pip-version-check --config-settings editable_mode=compat -e '.[gssapi,gssapi-zookeeper]'
	@$(BIN)/python -m zkconsumer.sandbox kafka-3.9.1 kafka-0.10.2.2 kafka-4.2.0
	@ZKCONSUMER_KERBEROS_REQUIRED=1 $(BIN)/pytest tests/kerberos

test-web: $(STAMP) ## tests with a real Chromium and Prometheus, which have to be installed
	@$(BIN)/python -m zkconsumer.sandbox kafka-3.9.1
	@ZKCONSUMER_WEB_REQUIRED=1 $(BIN)/pytest tests/web

test-all: test test-slow test-kerberos test-web test-containers ## everything; what each needs has to be installed

venv: $(STAMP) ## the virtual environment .venv, with everything that tests need

unit: $(STAMP) ## the tests that need no server
	@$(BIN)/pytest -n 2 tests/unit tests/property

MINUTES ?= 10
fuzz: $(STAMP) ## fuzz what takes brokers' bytes for MINUTES (default 10), all of it or TARGET=records|login; needs Linux
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install \
		--disable-pip-version-check --config-settings editable_mode=compat -e '.[fuzz]'
	@$(BIN)/python -m tests.fuzz.fuzz $(MINUTES) $(TARGET)

lint: $(STAMP) ## ruff and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

type: $(STAMP) ## mypy, strict
	@$(BIN)/mypy

fmt: $(STAMP) ## format, and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(STAMP) ## write what is generated: docs/cli.md, docs/config.md, docs/metrics.md
	@for page in config metrics; do $(BIN)/python -m zkconsumer.tools.reference $$page > docs/$$page.md || exit 1; done
	@$(BIN)/python -m zkconsumer.cli.reference > docs/cli.md

clean: ## remove the virtual environment, caches and build files of this checkout
	rm -rf $(VENV) build dist *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz \
		.import_linter_cache docker/*/jars docker/*/wheels spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# By name, and not the whole directory: ZKCONSUMER_CACHE may be one that holds other files.
CACHE = "$${ZKCONSUMER_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/zkconsumer}"
distclean: clean ## clean, and remove what the sandbox keeps in the user's cache directory (jars, about 200 MB)
	rm -rf $(CACHE)/jars $(CACHE)/java $(CACHE)/failed-sandbox
	rmdir $(CACHE) 2>/dev/null || true
