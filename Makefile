# Two commands matter: `make demo` and `make test`. Both set the machine up first, and do nothing twice.
SHELL := /bin/bash
.DEFAULT_GOAL := help

JOBS = $(shell tools/jobs.sh)
# What `make format` and `make lint` look at; override to look at less: make format FILES=src/base/text.cpp
FILES = $(shell find include src apps bindings tests bench examples tools -name "*.h" -o -name "*.cpp")
LINT_FILES = $(filter src/%.cpp examples/%.cpp,$(FILES))

.PHONY: help setup build demo test unit grids wheel sanitize sanitize-address sanitize-thread bench format check-format lint clean FORCE

help:
	@echo "make demo       train a small language model on 2 ranks with sharded weights, stop, resume on 1"
	@echo "make test       build everything, run all tests and checks"
	@echo "make unit       only the quick tests"
	@echo "make grids      the tests that make test runs a part of, whole: every stage, dtype and tier with every other"
	@echo "make sanitize   the tests, small, under address and undefined-behaviour, then thread sanitizers"
	@echo "make bench      measure against DDP, FSDP2 and DeepSpeed; writes bench/results/"
	@echo "make wheel      wheels of shoal and of the package that answers as deepspeed, in build/wheels"
	@echo "make format     clang-format (FILES=... for some files); make check-format only looks"
	@echo "make lint       clang-tidy (FILES=... for some files)"
	@echo "make setup      system packages and .venv; every target does it when needed"
	@echo "make clean      remove the build folders (not .venv)"

setup: .venv/.lock-stamp

# The stamp changes only when the environment did; then the build is configured again.
.venv/.lock-stamp: FORCE
	@tools/setup.sh

build/%/build.ninja: CMakePresets.json .venv/.lock-stamp
	@mkdir -p build/$*
	@cmake --preset $* >build/$*/configure.log 2>&1 || { cat build/$*/configure.log; exit 1; }
	@touch $@

build: build/dev/build.ninja
	@cmake --build --preset dev -j $(JOBS)

demo: build/dev/build.ninja
	@cmake --build --preset dev -j $(JOBS) --target shoal_cli
	@tools/demo.sh build/dev/apps/cli/shoal

test: build
	@tools/setup.sh trl
	@tools/run_tests.sh dev

unit: build
	@tools/run_tests.sh dev -L unit

grids: build
	@SHOAL_TEST_SIZE=whole tools/run_tests.sh dev -L grid

# SANITIZE_SECONDS=600: only what that time reaches, and the names of the rest. See tools/sanitize.py.
SANITIZE = .venv/bin/python3 tools/sanitize.py $(if $(SANITIZE_SECONDS),--seconds $(SANITIZE_SECONDS))

sanitize: setup
	@$(SANITIZE)

sanitize-address: setup
	@$(SANITIZE) address

sanitize-thread: setup
	@$(SANITIZE) thread

bench: build/release/build.ninja
	@cmake --build --preset release -j $(JOBS)
	@tools/peers_setup.sh
	@.venv/bin/python3 bench/run.py --build build/release

wheel:
	@tools/setup.sh wheel
	@CMAKE_BUILD_PARALLEL_LEVEL=$${CMAKE_BUILD_PARALLEL_LEVEL:-$(JOBS)} \
	  .venv/bin/python3 -m pip wheel --no-build-isolation --no-deps -w build/wheels . ./python

format: setup
	@.venv/bin/clang-format -i $(FILES)

check-format: setup
	@.venv/bin/python3 tools/check_format.py

lint: build/dev/build.ninja
	@tools/setup.sh lint
	@printf '%s\n' $(LINT_FILES) | xargs -P $(JOBS) -n 1 clang-tidy -p build/dev --quiet

clean:
	@rm -rf build
