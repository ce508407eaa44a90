# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
export OMP_NUM_THREADS ?= 1

.PHONY: demo test check fix golden rules docs matrix clean

demo: $(DEMO)  ## run a failing script and read the report
	@echo '$$ whynan run examples/distill.py'
	@$(BIN)/whynan run examples/distill.py || test $$? -eq 3

test: check  ## all checks and tests
	$(BIN)/pytest -n 3 -q --dist worksteal

check: $(READY)  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fix: $(READY)  ## let ruff mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(READY)  ## rewrite tests/cases/*/report.txt; read the diff as prose
	$(BIN)/pytest -n 2 -q tests/test_cases.py --update-golden

rules: $(READY)  ## write docs/rules/ from the documentation of the rules
	$(BIN)/python -m whynan.explain.rule_pages docs/rules

docs: $(READY)  ## the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# A whole matrix takes hours; `make matrix TORCH=2.8 PYTHON=3.12` one combination of it.
matrix:  ## a sample of the tests under every torch and Python that is supported
	PYTHONPATH=src python3 -m tests.matrix --torch "$(TORCH)" $(if $(TESTS),--tests "$(TESTS)") \
	  --python "$(if $(filter command,$(origin PYTHON)),$(PYTHON))"

# torch goes in first and alone: anything that depends on it would otherwise pull a larger build.
# NumPy, because torch warns where it is missing.
$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "whynan needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) $$(grep '^torch==' constraints.txt)
	$(PIP) -c constraints.txt numpy -e .
	@touch $@

$(READY): $(DEMO)
	$(PIP) -c constraints.txt -e '.[dev,libraries]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
