# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Everything happens in .venv and build/; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc)
PROMPT ?= Why is the sky blue?
MODEL ?= smollm2-135m
PIP := $(BIN)/python -m pip --disable-pip-version-check
BUILD_REQUIRES := "scikit-build-core>=0.11,<2" "nanobind>=2.4,<4" "cmake>=3.21" "ninja>=1.10"
NATIVE := $(shell find native -name '*.cc' -o -name '*.h' -o -name CMakeLists.txt | grep -v -e native/tests/ -e native/bench/)
NATIVE_ALL := $(shell find native -name '*.cc' -o -name '*.h')
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

.PHONY: help run serve test check fmt test-native test-python test-sanitize bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

run: $(VENV)/.installed ## answer PROMPT="..." with MODEL=... (installs octavo and pulls the model first)
	@$(BIN)/octavo run --model "$(MODEL)" "$(PROMPT)"

serve: $(VENV)/.installed ## an OpenAI-compatible server for MODEL=... on port 8000
	@$(BIN)/octavo serve --model "$(MODEL)"

test: test-python ## run every test (sets everything up first)

test-python: test-native
	OCTAVO_NATIVE_BUILD=build/native $(BIN)/python -m pytest

test-native: $(VENV)/.dev
	$(BIN)/cmake -S native -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DOCTAVO_TESTS=ON
	$(BIN)/cmake --build build/native
	$(BIN)/ctest --test-dir build/native --output-on-failure

test-sanitize: $(VENV)/.dev ## native tests under ASan+UBSan, the thread pool and decoder under TSan
	$(BIN)/cmake -S native -B build/asan -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DOCTAVO_TESTS=ON \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DOCTAVO_SANITIZE=address,undefined
	$(BIN)/cmake --build build/asan
	$(BIN)/ctest --test-dir build/asan --output-on-failure
	$(BIN)/cmake -S native -B build/tsan -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DOCTAVO_TESTS=ON \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DOCTAVO_SANITIZE=thread
	$(BIN)/cmake --build build/tsan --target thread_pool_test decoder_test decoder_settings_test
	$(BIN)/ctest --test-dir build/tsan --output-on-failure -R 'thread_pool_test|decoder_test|decoder_settings_test'

check: $(VENV)/.dev ## lint, format, types, layers, limits: what must be clean before a commit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@echo clang-format --dry-run --Werror native; $(BIN)/clang-format --dry-run --Werror $(NATIVE_ALL)
	$(BIN)/python -m pytest -q tests/policy

fmt: $(VENV)/.dev ## format Python and C++ in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@echo clang-format -i native; $(BIN)/clang-format -i $(NATIVE_ALL)

bench: $(VENV)/.dev ## kernels beside their ceilings, then engines beside each other
	$(BIN)/cmake -S native -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DOCTAVO_TESTS=ON
	$(BIN)/cmake --build build/native
	build/native/gemm_bench
	build/native/attention_bench
	build/native/sampler_bench
	$(BIN)/python benchmarks/compare.py

clean: ## remove .venv and build/
	rm -rf $(VENV) build

$(VENV)/.created:
	@command -v g++ >/dev/null || { echo "error: no C++ compiler; on Debian: apt-get install g++"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml CMakeLists.txt $(NATIVE)
	@echo "Installing octavo into $(VENV): compiles its C++ core, about two minutes the first time ..."
	@$(PIP) install --quiet $(BUILD_REQUIRES)
	@$(PIP) install --quiet --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(PIP) install --quiet --no-build-isolation --editable '.[dev]'
	@touch $@
