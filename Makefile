# Two commands: `make quickstart` trains the nano policy and shows what it learned, `make test` runs the suite.
# `make vllm` makes the separate environment of generation.backend = vllm.
# PIP_ARGS goes to pip as it is, for a private index or PyTorch's CPU wheels (see README.md).
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PROFILE ?= nano
SEED ?= 0

.PHONY: quickstart vllm test test-all lint clean

quickstart: $(VENV)/.installed
	$(BIN)/mlrl competitions prepare diamonds
	$(BIN)/mlrl train --profile $(PROFILE) --seed $(SEED)

vllm: $(VENV)/.installed
	$(BIN)/python -m mlrl_core.generation.vllm.environment $(PIP_ARGS)

test: $(VENV)/.installed-dev lint
	$(BIN)/pytest -m "not slow"

test-all: $(VENV)/.installed-dev lint
	$(BIN)/pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "mlrl needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install $(PIP_ARGS) -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install $(PIP_ARGS) -e ".[dev]"
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build *.egg-info
