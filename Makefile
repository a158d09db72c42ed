# The same words that CI uses. Nothing here needs root or touches the machine outside this directory and the user's
# cache directory; everything is idempotent and works offline after the first run.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One stamp for each place: a virtual environment that was moved does not work. What the demo needs is a part of what
# tests need, so it has a stamp of its own for the same environment.
PLACE := $(firstword $(shell printf %s "$(CURDIR)" | cksum))
STAMP := $(VENV)/.installed-$(PLACE)
DEMO_STAMP := $(VENV)/.installed-demo-$(PLACE)

.DEFAULT_GOAL := help
.PHONY: help venv demo test gate sample test-all times flaky soak gssapi lint size type fmt unit mutants fuzz docs pictures site release clean distclean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --copies is not needed: a stamp is older than setup.cfg when the dependencies changed, or than the decoder's source.
SOURCES := setup.cfg setup.py pyproject.toml $(wildcard zkconsumer/decode/native/*.[ch])

define environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "Python 3.11 or later is needed; set PYTHON=/path/to/python3" >&2; exit 1; }
@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); } \
	|| { echo "could not create $(VENV); on Debian: apt install python3-venv" >&2; rm -rf $(VENV); exit 1; }
endef
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --progress-bar on --config-settings editable_mode=compat -e

$(STAMP): $(SOURCES)
	$(environment)
	@echo "installing zkconsumer and what it needs into $(VENV) (about 2.3 GB, once)"
	@$(INSTALL) '.[dev]'
	@touch $(DEMO_STAMP) $@

$(DEMO_STAMP): $(SOURCES)
	$(environment)
	@echo "installing zkconsumer and what the demo needs into $(VENV) (about 1.1 GB, once)"
	@$(INSTALL) '.[demo]'
	@touch $@

demo: $(DEMO_STAMP) ## the main job end to end on real servers and real data, verified
	@$(BIN)/python -m demo

test: $(STAMP) ## unit, property and integration tests
	@$(BIN)/python -m zkconsumer.sandbox kafka-3.9.1
	@$(BIN)/python -m tests.suites fast

# PART: unit, integration, servers, spark, demo, kerberos, web, containers, or several; all if it is empty.
gate: $(STAMP) ## what CI runs of PART (all of them by default): make test, and the sample in tests/gate.toml
	@$(BIN)/python -m zkconsumer.sandbox
	@$(BIN)/python -m tests.suites gate $(PART)

sample: $(STAMP) ## the sample in tests/gate.toml of PART (all of them by default): what `make gate` adds to `make test`
	@$(BIN)/python -m zkconsumer.sandbox
	@$(BIN)/python -m tests.suites sample $(PART)

test-all: $(STAMP) $(if $(PART),,gssapi) ## everything that has not passed on this tree, or PART, for MINUTES if they are given
	@$(BIN)/python -m zkconsumer.sandbox
	@bash .ci/engine $(BIN)/python -m tests.suites all $(if $(MINUTES),--minutes $(MINUTES)) $(PART)

times: $(STAMP) ## run TESTS (arguments of pytest), and print minutes by suite, by file and by cause
	@$(BIN)/python -m zkconsumer.sandbox
	@$(BIN)/python -m tests.suites times -- $(TESTS)

HOURS ?= 1
SEED ?= 1
PROTOCOL ?= zookeeper
soak: $(STAMP) ## a group of PROTOCOL for HOURS with a random fault each minute by SEED: nothing lost, nothing grows
	@$(BIN)/python -m zkconsumer.sandbox
	@$(BIN)/python -m tests.chaos soak --hours $(HOURS) --seed $(SEED) --protocol $(PROTOCOL)

N ?= 20
flaky: $(STAMP) ## run TESTS, or the test files that changed SINCE a revision, N times on a loaded machine
	@$(BIN)/python -m zkconsumer.sandbox
	@$(BIN)/python -m tests.suites flaky --count $(N) $(if $(SINCE),--since $(SINCE)) $(TESTS)

# Of the tests with a real KDC; docs/security.md lists what building it requires.
gssapi: $(STAMP) ## build the packages for Kerberos into the virtual environment
	@$(BIN)/python -c 'import gssapi, kerberos' 2>/dev/null || $(INSTALL) '.[gssapi,gssapi-zookeeper]'

venv: $(STAMP) ## the virtual environment .venv, with everything that tests need

unit: $(STAMP) ## the tests that need no server
	@$(BIN)/pytest -n 3 --dist worksteal tests/property tests/unit

fuzz: $(STAMP) ## fuzz what takes brokers' bytes for MINUTES (default 10), all of it or TARGET=records|login; needs Linux
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(INSTALL) '.[fuzz]'
	@$(BIN)/python -m tests.fuzz $(or $(MINUTES),10) $(TARGET)

mutants: $(STAMP) ## how many mutants of the packages named rules their unit tests kill, of all or below ROOM (for example group)
	@$(BIN)/python -m tests.mutants $(ROOM)

size: ## lines of code of each room of the package, without blank lines, comments and docstrings
	@python3 .ci/size.py zkconsumer

lint: $(STAMP) ## ruff and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

type: $(STAMP) ## mypy, strict
	@$(BIN)/mypy

fmt: $(STAMP) ## format, and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(STAMP) ## write what is generated: docs/cli.md, compatibility.md, config.md, metrics.md, the tables of measurements.md
	@for page in compatibility config metrics; do $(BIN)/python -m tests.reference.tables $$page > docs/$$page.md || exit 1; done
	@$(BIN)/python -m tests.reference.commands > docs/cli.md
	@$(BIN)/python -m tests.reference.figures

pictures: $(STAMP) ## take the pictures of the page of serve in docs/images again; look at them before you commit
	@$(BIN)/python -m zkconsumer.sandbox kafka-3.9.1
	@ZKCONSUMER_PICTURES=docs/images $(BIN)/pytest tests/web/test_pictures.py

site: $(STAMP) ## build the site in build/site, to be opened at index.html; a warning is an error
	@$(BIN)/python -m tests.release.site build/site

release: $(STAMP) ## rehearse a release of HEAD, or of TAG, whose distributions are kept in dist/; nothing is published
	@$(BIN)/python -m tests.release $(if $(TAG),--tag $(TAG))

clean: ## remove the virtual environment, caches and build files of this checkout
	rm -rf $(VENV) build dist *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz \
		zkconsumer/decode/*.so .import_linter_cache docker/*/jars docker/*/wheels spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# By name, and not the whole directory: ZKCONSUMER_CACHE may be one that holds other files.
CACHE = "$${ZKCONSUMER_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/zkconsumer}"
distclean: clean ## clean, and remove what the sandbox keeps in the user's cache directory (jars and archives of classes, about 410 MB)
	rm -rf $(CACHE)/jars $(CACHE)/java $(CACHE)/classes $(CACHE)/failed-sandbox
	rmdir $(CACHE) 2>/dev/null || true
