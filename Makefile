# Two commands do everything on a machine that has Python 3.11 or newer and make:
#   make demo    trains a private model across silos on real digits
#   make test    runs the checks that every change needs
# And make docs builds the documentation's site, without network. Two take their time:
#   make thorough   the rest of the tests, which CI runs too: every code block of the documentation, research and its
#                   experiments' rehearsals, an attack on every mechanism and its power, both engines and the tour,
#                   scikit-learn's checks, every algorithm by the command line, every loss on every way to train, upgrades,
#                   crowds at the doors, code for the engine, tables in parts and in files, fuzzing, and, as root, services,
#                   machines and core dumps
#   make audit      attacks every mechanism at full size, and breaks each to see that it is noticed
# And for those who hand it out (CONTRIBUTING.md, "Release"):
#   make dist       wheel and sdist of the last commit into dist/, built twice and compared byte for byte
#   make release    those, what is in an installation (SBOM), checksums and, given RELEASE_KEY, a signature
#   make licences, make audit-dependencies   the licences and known vulnerabilities of what an installation brings
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

THOROUGH := tests/docs tests/research tests/fuzz \
  tests/simulation/test_engine.py tests/simulation/test_shuffled_engine.py tests/simulation/test_baselines.py \
  tests/audit/test_every_mechanism.py tests/audit/test_power.py tests/deployment/test_evaluation.py \
  tests/silo/test_personal.py tests/cli/test_silo_own.py tests/cli/test_predict.py tests/estimators/test_generalised.py \
  tests/estimators/test_conventions.py tests/deployment/test_core_dumps.py tests/cli/test_algorithms.py \
  tests/deployment/test_nvflare.py tests/deployment/test_flower.py tests/deployment/test_tour.py \
  tests/deployment/test_existing_federation.py \
  tests/deployment/test_services.py tests/deployment/test_systemd.py tests/deployment/test_machines.py \
  tests/deployment/test_kits.py tests/deployment/test_shuffled_nvflare.py tests/golden/test_upgrade.py \
  tests/attacks/test_engine_code.py tests/attacks/test_doors.py tests/attacks/test_one_ledger.py \
  tests/silo/test_chunks.py tests/silo/test_divided.py \
  tests/test_every_loss.py tests/estimators/test_every_loss.py tests/deployment/test_through_agents.py

# Tests keep their files in memory where there is room: a ledger syncs at every step, and they would wait for the disk.
ROOM := $(shell df --output=avail /dev/shm 2>/dev/null | tail -1)
MEMORY := $(shell test "$(ROOM)" -gt 4000000 2>/dev/null && echo TMPDIR=/dev/shm)

# Workers share the cores: a library that starts threads of its own for every product only has them wait for each other.
tests thorough audit: export OPENBLAS_NUM_THREADS := 1

.PHONY: demo test tests thorough packages check style types audit docs dist release licences audit-dependencies clean

demo: $(VENV)/.demo
	$(BIN)/ringfence demo

# Types take a core for a minute, beside the tests.
test: packages style
	$(MAKE) --no-print-directory --jobs 2 types tests

tests: $(VENV)/.test
	$(MEMORY) $(BIN)/pytest -n 3 -q $(addprefix --ignore=,$(THOROUGH))

thorough: packages $(VENV)/.test
	$(BIN)/pytest -n 3 -q $(THOROUGH)

# The browser that looks at our pages, and systemd's tools; the tests fail without them.
packages:
	.ci/packages

check: style types

style: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.test
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/python tools/api_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site/$(VERSION)
	$(BIN)/python -m tools.versions site

audit: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist load -q audits
	RINGFENCE_EFFORT=20 $(BIN)/pytest -n 2 -q tests/fuzz tests/silo/test_gate_machine.py

dist: $(VENV)/.release
	$(BIN)/python -m tools.release build

release: licences
	$(BIN)/python -m tools.release release

licences: $(VENV)/.all $(VENV)/.release
	$(BIN)/python -m tools.licences

# It needs PyPI itself, and says which packages it could not ask about: no part of CI, which may have only a mirror.
audit-dependencies: $(VENV)/.all $(VENV)/.release
	$(BIN)/python -m tools.audit_dependencies

# One environment; each stamp says which extra is in it, and a changed pyproject.toml installs anew.
$(VENV)/.%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) site dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
