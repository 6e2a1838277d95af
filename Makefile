# Two commands on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: install demo test test-all matrix evaluation lint wheel clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,openai,postgres,s3,server]'
	touch $@

demo: install
	$(BIN)/python demo/run.py

test: install
	$(BIN)/python -m pytest

test-all: install
	$(BIN)/python -m pytest -m ''

# The calls of several versions of the Hugging Face client, each against a hub of our own.
matrix: install
	$(BIN)/python tests/conformance/matrix.py

# Every task under every setting, on the data sets in DATA; writes the results into docs/evaluation.md.
evaluation: install
	$(BIN)/python -m benchmarks.evaluation --path "$(DATA)" --write

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks recipes demo docs

wheel: install
	$(BIN)/python tests/wheel/check.py

clean:
	rm -rf $(VENV) dist build demo/out
