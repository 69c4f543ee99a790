# One verb each: run, test, check, bench. Each sets up .venv first, when it is missing or the lock has changed.
# Needs make and Python 3.11 or newer with its venv module; no root. ARGS goes to the tool behind test, bench and lock.

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
PYTHONS := python3.13 python3.12 python3.11 python3
UV := uv
LOCK := $(UV) pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
  --exclude-newer '7 days' --no-header --no-annotate

# Recorded provider traffic. Where there is none, the tests that replay it are skipped.
ifneq ($(wildcard ../shared/recordings),)
RECORDINGS_DIR ?= $(CURDIR)/../shared/recordings
export RECORDINGS_DIR
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE # the program, started a hundred times by the tests, takes half the time to start

.PHONY: help run test check bench lock

help:
	@echo 'make run     start the demo: simulated providers, an example document, a few requests'
	@echo 'make test    run all tests (ARGS="tests/routing -k split" runs some)'
	@echo 'make check   lint, format and types'
	@echo 'make bench   measure, and write bench/results/latest.json'
	@echo 'make lock    renew requirements/ from pyproject.toml (ARGS=--upgrade takes newer versions)'

run: $(READY)
	@$(VENV)/bin/lumen demo

test: $(READY)
	$(PYTHON) -m pytest -n 2 --dist worksteal $(ARGS)

check: $(READY)
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy

bench: $(READY)
	$(PYTHON) -m bench $(ARGS)

# Nothing younger than a week, and the pins that stand stay unless ARGS says --upgrade.
lock:
	@command -v $(UV) >/dev/null || { echo 'make lock needs uv: put it on the PATH, or say make lock UV=/path/to/uv' >&2; exit 1; }
	$(LOCK) --group dev --output-file requirements/dev.txt $(ARGS)
	$(LOCK) --constraints requirements/dev.txt --output-file requirements/runtime.txt $(ARGS)

# An environment whose Python runs, is new enough and has pip is kept; anything else is made anew.
$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { $(make_venv); }
	$(PYTHON) -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(PYTHON) -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# A name on the PATH may lead nowhere (version managers), and Debian ships Python without its venv module.
define make_venv
  for python in $(PYTHONS); do \
    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
    usable=$$python; \
    "$$python" -c 'import ensurepip, venv' 2>/dev/null || continue; \
    echo "Setting up $(VENV) with $$("$$python" --version)"; \
    "$$python" -m venv --clear $(VENV) && exit; \
    exit 1; \
  done; \
  if [ -n "$$usable" ]; then \
    echo "$$usable has no venv module. On Debian and Ubuntu it is the package python3-venv." >&2; \
  else \
    echo 'No Python 3.11 or newer found (looked for $(PYTHONS)). Install one, then run make again.' >&2; \
  fi; \
  exit 1
endef
