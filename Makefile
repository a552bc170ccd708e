# The serving workbench. `make` alone lists the targets.
# Everything is installed into .venv here, with the versions of constraints.txt; a second run finds it done.
# Paths stay relative and tools are called as modules, so that a folder with spaces in its name works.

PYTHON ?= python3
MODEL ?= smollm2-135m-instruct
PIP_ARGS ?=
ARGS ?=

PY := .venv/bin/python
PIP := $(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt $(PIP_ARGS)
FILES := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help run test lint types format bench bench-scheduling bench-recording clean model

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  make run ARGS='--model tiny --max-num-seqs 4'   passes options to workbench run"

# Another model named in ARGS needs no default one (and `tiny` no network).
run: .venv/.runtime $(if $(findstring --model,$(ARGS)),,model) ## the live screen, from nothing: environment, default model, workbench run
	@$(PY) -m workbench run $(ARGS)

test: .venv/.dev .venv/.browser model lint ## linters, types, import rules and all tests (needs no GPU)
	@echo "tests"
	@$(PY) -m pytest $(or $(ARGS),-m "not model and not tmux" -n auto --maxprocesses 4)
	@$(if $(ARGS),,$(PY) -m pytest -m "model or tmux")

lint: .venv/.dev ## ruff, mypy and the import rules
	@echo "ruff, mypy, import rules"
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"

format: .venv/.dev ## let ruff format the code
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: .venv/.runtime model ## tokens a second of a fixed workload, median of a few runs
	@$(PY) benchmarks/throughput.py $(ARGS)

bench-scheduling: .venv/.runtime ## microseconds an iteration takes besides the model, by running and waiting requests
	@$(PY) benchmarks/scheduling_cost.py $(ARGS)

bench-recording: .venv/.runtime ## what recording costs an iteration, and how fast a long recording opens and seeks
	@$(PY) benchmarks/recording_cost.py $(ARGS)

clean: ## remove the environment and everything made here (not the model cache)
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

model: .venv/.runtime
	@$(PY) -m workbench model get $(MODEL) > /dev/null

.venv/.made:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || { \
	  echo "error: the workbench needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "       Give another one: make run PYTHON=python3.12" >&2; exit 2; }
	@echo "making .venv"
	@rm -rf .venv
	@$(PYTHON) -m venv .venv || { \
	  echo "error: $(PYTHON) cannot make environments; install its venv module (Debian: apt install python3-venv)." >&2; \
	  rm -rf .venv; exit 2; }
	@touch $@

.venv/.runtime: .venv/.made $(FILES)
	@echo "installing what the workbench needs (torch is large: the first time takes minutes)"
	@$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.made $(FILES)
	@echo "installing what tests and linters need"
	@$(PIP) -e '.[dev]'
	@touch $@ .venv/.runtime

# A report is looked at in a browser. Where there is none and none can be installed, those tests are left out: it is
# told each time, and looked for again the next time.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable
FIND_BROWSER = for name in $(BROWSERS); do command -v "$$name" > /dev/null && { touch $@; exit 0; }; done
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=30

.venv/.browser: .venv/.made
	@$(FIND_BROWSER); \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "installing chromium, to look at reports in"; \
	  { $(APT) update && $(APT) install -y --no-install-recommends chromium; } > /dev/null 2>&1; \
	  $(FIND_BROWSER); \
	  echo "note: chromium could not be installed (apt-get install chromium says why); reports are not looked at"; \
	else \
	  echo "note: there is no chromium or google-chrome on the PATH; reports are not looked at"; \
	fi
