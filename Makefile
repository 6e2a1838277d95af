# Two commands on a fresh machine: make demo, make test.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
# pip would compile on one core what COMPILE does on all; files of other versions of Python don't compile.
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/tests/' $(VENV)/lib
# What a user needs, and on top of it what tests, checks and benchmarks need.
USER    := $(VENV)/.installed
DEV     := $(VENV)/.installed-dev

.PHONY: install dev demo test test-all matrix evaluation docs lint wheel clean

install: $(USER)

dev: $(DEV)

$(USER): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -c constraints.txt -e .
	$(COMPILE) || true
	touch $@

$(DEV): $(USER)
	$(PIP) -c constraints.txt -e '.[dev,docs,openai,postgres,s3,server]'
	$(COMPILE) || true
	touch $@

demo: install
	$(BIN)/python demo/run.py

test: dev
	$(BIN)/python -m pytest

test-all: dev
	$(BIN)/python -m pytest -m ''

# The calls of several versions of the Hugging Face client, each against a hub of our own.
matrix: dev
	$(BIN)/python tests/conformance/matrix.py

# Every task under every setting, on the data sets in DATA; writes the results into docs/evaluation.md.
evaluation: dev
	$(BIN)/python -m benchmarks.evaluation --path "$(DATA)" --write

# The documentation site: build/docs/html/index.html.
docs: dev
	$(BIN)/python docs/site/build.py

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks recipes demo docs

wheel: dev
	$(BIN)/python tests/wheel/check.py dist

clean:
	rm -rf $(VENV) dist build demo/out
