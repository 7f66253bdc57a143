# `make demo` and `make test` set up everything they need; a second run starts at once (stamp files in .venv).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
SETUP := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test dev lint types package browser clean

help:  ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 10

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python $(SETUP)
	@echo "installing the workbench (no torch), a minute or two"
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.test: $(BIN)/python $(SETUP)
	@echo "installing the workbench with torch and the test tools, a few minutes"
	@$(PIP) install -c constraints.txt -e '.[dev,measure,capture,bench,silicon,cluster,search]'
	@touch $@ $(VENV)/.core

$(VENV)/.dev: $(BIN)/python $(SETUP)
	@echo "installing the workbench with every extra, a few minutes"
	@$(PIP) install -c constraints.txt -e '.[dev,measure,capture,bench,silicon,cluster,search]'
	@touch $@ $(VENV)/.core $(VENV)/.test

demo: $(VENV)/.core  ## replay a real trace on a simulated machine and write its report (no torch needed)
	@$(BIN)/workbench replay traces/data/small-olmoe-stdlib.safetensors \
	  --model small-olmoe-stdlib --hardware h200-sxm --profile h200-sxm-sglang \
	  --policy lru,lfu,least-stale --prefetch none,gate --capacity 15%,25%,50% \
	  --out runs/demo --report runs/demo/report.html

test: $(VENV)/.test browser  ## every test (the report in headless Chromium too)
	@OMP_NUM_THREADS=1 $(BIN)/pytest -q -rs -n auto --dist loadfile --no-loadscope-reorder $(TESTS)

browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing chromium for the report's tests"; \
	    apt-get -qq update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install chromium >/dev/null \
	      || echo "chromium could not be installed: the browser tests will be skipped"; \
	  else \
	    echo "no chromium here and no right to install it: the browser tests will be skipped"; \
	  fi

dev: $(VENV)/.dev  ## every extra in .venv

lint: $(VENV)/.test  ## ruff
	@$(BIN)/ruff check .

# The root is the package, so mypy finds it through a link that bears the package's name
types: $(VENV)/.test  ## mypy --strict
	@mkdir -p $(VENV)/types && ln -sfn "$$(pwd)" $(VENV)/types/codesign
	@MYPYPATH=$(VENV)/types $(BIN)/mypy -p codesign

package: $(VENV)/.test  ## wheel and sdist in dist/
	@rm -rf dist build && $(BIN)/python -m build -o dist . >/dev/null

clean:  ## remove what make built, .venv included
	@rm -rf $(VENV) dist build codesign_workbench.egg-info .mypy_cache .ruff_cache .hypothesis
