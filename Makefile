# Two commands do everything on a machine that has Python 3.11 or newer and make:
#   make demo    trains a private model across silos on real digits
#   make test    runs the checks that every change needs
# And make docs builds the documentation's site, without network. Two take their time:
#   make thorough   the rest of the tests, which CI runs too: every code block of the documentation, research and its
#                   experiments' rehearsals, both engines and the tour, upgrades, crowds at the doors, code for the
#                   engine, fuzzing, and, as root, services and machines
#   make audit      attacks every mechanism at full size, and breaks each to see that it is noticed
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

THOROUGH := tests/docs tests/research tests/fuzz \
  tests/simulation/test_engine.py tests/simulation/test_shuffled_engine.py tests/simulation/test_baselines.py \
  tests/deployment/test_nvflare.py tests/deployment/test_flower.py tests/deployment/test_tour.py \
  tests/deployment/test_services.py tests/deployment/test_systemd.py tests/deployment/test_machines.py \
  tests/deployment/test_kits.py tests/deployment/test_shuffled_nvflare.py tests/golden/test_upgrade.py \
  tests/attacks/test_engine_code.py tests/attacks/test_doors.py tests/attacks/test_one_ledger.py

# Tests keep their files in memory where there is room: a ledger syncs at every step, and they would wait for the disk.
ROOM := $(shell df --output=avail /dev/shm 2>/dev/null | tail -1)
MEMORY := $(shell test "$(ROOM)" -gt 4000000 2>/dev/null && echo TMPDIR=/dev/shm)

.PHONY: demo test thorough packages check audit docs clean

demo: $(VENV)/.demo
	$(BIN)/ringfence demo

test: packages check
	$(MEMORY) $(BIN)/pytest -n 3 -q $(addprefix --ignore=,$(THOROUGH))

thorough: packages $(VENV)/.test
	$(BIN)/pytest -n 3 -q $(THOROUGH)

# The browser that looks at our pages, and systemd's tools; the tests fail without them.
packages:
	.ci/packages

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs
	$(BIN)/python tools/api_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

audit: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist load -q audits
	RINGFENCE_EFFORT=20 $(BIN)/pytest -n 2 -q tests/fuzz tests/silo/test_gate_machine.py

# One environment; each stamp says which extra is in it, and a changed pyproject.toml installs anew.
$(VENV)/.%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
