# The one task runner. `make serve` and `make test` are all that a new machine needs; everything is safe to repeat.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
MODEL ?= smollm2
FLAGS ?=
PYTEST_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# What the compiled part is made from: when one of these is newer than the install, it is built again.
SOURCES := pyproject.toml $(wildcard CMakeLists.txt) $(shell find csrc cmake -type f 2> /dev/null)
PYTHON_FILES := src tests tools bench
CXX_FILES := $(shell find csrc -name '*.cc' -o -name '*.h' 2> /dev/null)

.PHONY: help setup serve test test-long check format docs docs-options models wheel test-install \
	test-kernels-sanitized test-kernels-arm clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 26

setup: $(STAMPS)/octavo ## Make .venv with .venv/bin/octavo

serve: $(STAMPS)/octavo ## Fetch the default model and serve it on 127.0.0.1:8000 (MODEL=..., FLAGS="--port 8001")
	$(BIN)/octavo serve $(MODEL) $(FLAGS)

test: $(STAMPS)/test models test-kernels-sanitized test-kernels-arm ## Run the test suite in its short form
	$(BIN)/python -m pytest -m "not long" $(PYTEST_FLAGS)

test-long: $(STAMPS)/test models test-kernels-sanitized test-kernels-arm test-kernels-arm-sanitized test-install ## Run everything, with full counts
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

test-kernels-sanitized: $(STAMPS)/test ## Build the kernels' C++ tests with sanitizers and run them
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
		-DCMAKE_BUILD_TYPE=RelWithDebInfo -DOCTAVO_SANITIZE=ON -DOCTAVO_BUILD_TESTS=ON
	$(BIN)/cmake --build build/sanitize
	$(BIN)/ctest --test-dir build/sanitize --output-on-failure --no-tests=error

test-kernels-arm: $(STAMPS)/test ## Build the kernels' C++ tests for AArch64 and run them in an emulator, where both are installed
	@$(call test_on_arm,build/aarch64,)

# Leaks are looked for on x86-64 only: that needs ptrace, which the emulator lacks.
test-kernels-arm-sanitized: $(STAMPS)/test ## The same with sanitizers
	@export ASAN_OPTIONS=detect_leaks=0; \
	$(call test_on_arm,build/aarch64-sanitize,-DCMAKE_BUILD_TYPE=RelWithDebInfo -DOCTAVO_SANITIZE=ON)

define test_on_arm
if ! command -v aarch64-linux-gnu-g++ > /dev/null || ! command -v qemu-aarch64 > /dev/null; then \
	echo "$@: left out, the NEON kernels are not tested: it needs aarch64-linux-gnu-g++ and qemu-aarch64."; \
	echo "On Debian or Ubuntu: apt-get install -y g++-aarch64-linux-gnu qemu-user"; \
else \
	$(BIN)/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
		-DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake -DOCTAVO_BUILD_TESTS=ON $(2); \
	$(BIN)/cmake --build $(1); \
	$(BIN)/ctest --test-dir $(1) --output-on-failure --no-tests=error --parallel 3; \
fi
endef

check: $(STAMPS)/check $(STAMPS)/test ## Formatters, linters, types and import rules
	$(BIN)/ruff format --check $(PYTHON_FILES)
	$(BIN)/ruff check $(PYTHON_FILES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(if $(CXX_FILES),$(BIN)/clang-format --dry-run -Werror $(CXX_FILES))

format: $(STAMPS)/check ## Format the sources
	$(BIN)/ruff format $(PYTHON_FILES)
	$(BIN)/ruff check --fix $(PYTHON_FILES)
	$(if $(CXX_FILES),$(BIN)/clang-format -i $(CXX_FILES))

docs: $(STAMPS)/octavo ## Write docs/reference from the code, and the measurements of docs/paging.md
	$(BIN)/python tools/write_reference.py
	$(BIN)/python tools/write_fields.py
	$(BIN)/python tools/measure_paging.py

docs-options: $(STAMPS)/test ## Write docs/reference/options.md: every pair of options, asked of real servers
	$(BIN)/python tools/write_option_matrix.py

# The tests run on both models; Gemma's terms (https://ai.google.dev/gemma/terms) are agreed to here.
models: $(STAMPS)/octavo ## Fetch the models that the tests use
	$(BIN)/octavo pull smollm2
	$(BIN)/octavo pull gemma3-270m --accept-license

wheel: $(STAMPS)/venv ## Build dist/octavo-*.whl, which installs without a compiler
	rm -rf dist
	$(BIN)/pip wheel --no-deps --wheel-dir dist .
	@for wheel in dist/octavo-*.whl; do \
		version="$$($(BIN)/python -c 'import sys; print("%d.%d (cp%d%d)" % (sys.version_info[:2] * 2))')"; \
		echo; echo "$$PWD/$$wheel"; \
		echo "It is for Python $$version on Linux $$(uname -m). For another: make clean && make wheel PYTHON=python3.12"; \
	done

test-install: wheel ## Install the wheel in a fresh environment without a compiler and look at it
	tools/test-install dist/octavo-*.whl

clean: ## Remove everything that make has made (not the model cache)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -f src/octavo/_C*.so

# The scripts in .venv name its folder, and build/ names the sources' one: in a clone that was moved or copied both are
# made again.
ifneq ($(CURDIR),$(shell cat $(STAMPS)/venv 2> /dev/null))
.PHONY: $(STAMPS)/venv
endif

$(STAMPS)/venv:
	@PYTHON="$(PYTHON)" tools/preflight
	rm -rf build
	$(PYTHON) -m venv --clear $(VENV)
	@mkdir -p $(STAMPS) && pwd -P > $@

$(STAMPS)/octavo: $(STAMPS)/venv $(SOURCES)
	$(BIN)/pip install --editable ".[grammars]"
	@touch $@

$(STAMPS)/test $(STAMPS)/check: $(STAMPS)/%: $(STAMPS)/octavo tools/extra_requirements.py
	$(BIN)/python tools/extra_requirements.py $* > $(STAMPS)/$*.txt
	$(BIN)/pip install -r $(STAMPS)/$*.txt
	@touch $@
