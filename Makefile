# Two commands matter: `make demo` and `make test`. Both set the machine up first, and do nothing twice.
SHELL := /bin/bash
.DEFAULT_GOAL := help

JOBS = $(shell tools/jobs.sh)
# What `make format` and `make lint` look at; override to look at less: make format FILES=src/base/text.cpp
FILES = $(shell find include src apps bindings tests bench examples tools -name "*.h" -o -name "*.cpp")
LINT_FILES = $(filter src/%.cpp examples/%.cpp,$(FILES))
# clang-format takes any other file for C++ too, and spoils it.
NOT_CPP = $(filter-out %.h %.cpp %.cu %.cuh,$(FILES))

.PHONY: help setup build demo test unit grids hosts kill-test exactness install wheel matrix docs sanitize sanitize-address sanitize-thread fuzz bench format check-format lint clean FORCE

help:
	@echo "make demo       train a small language model on 2 ranks with sharded weights, stop, resume on 1"
	@echo "make test       build everything, run all tests and checks"
	@echo "make unit       only the quick tests"
	@echo "make grids      the tests that make test runs a part of, whole: every stage, dtype and tier with every other"
	@echo "make hosts      ranks on several hosts, which are network namespaces: starting, and what goes wrong between them"
	@echo "make kill-test  200 kills of a run's processes at random moments (KILLS=20: so many); prints how long each cost"
	@echo "make sanitize   the tests, small, under address and undefined-behaviour, then thread sanitizers"
	@echo "make fuzz       what files and people may get wrong, in variants, under sanitizers; FUZZ_SECONDS=300 for each kind"
	@echo "make bench      measure against DDP, FSDP2 and DeepSpeed; writes bench/results/"
	@echo "make install    the command, the C++ library and its CMake package into PREFIX (~/.local)"
	@echo "make wheel      wheels of shoal and of the package that answers as deepspeed, in build/wheels (TORCH=2.15: for that torch)"
	@echo "make matrix     build and test against every torch, each in an environment of its own: hours (TORCH=2.15: that one)"
	@echo "make docs       this documentation as a site that needs no network, in build/site"
	@echo "make format     clang-format (FILES=... for some files); make check-format only looks"
	@echo "make lint       clang-tidy (FILES=... for some files)"
	@echo "make setup      system packages and .venv; every target does it when needed"
	@echo "make clean      remove the build folders (not .venv)"
	@echo
	@echo 'make CUDA_ARCHITECTURES="80;90" TARGET   compile for these GPUs, or for all; kept until others are named'

setup: .venv/.lock-stamp

# The stamp changes only when the environment did; then the build is configured again.
.venv/.lock-stamp: FORCE
	@tools/setup.sh

# The GPUs to compile for: what was named last.
build/.cuda-architectures: FORCE
	@mkdir -p build
	@new='$(CUDA_ARCHITECTURES)'; touch -a $@; [[ -z "$$new" || "$$new" == "$$(<$@)" ]] || echo "$$new" >$@

build/%/build.ninja: CMakePresets.json .venv/.lock-stamp build/.cuda-architectures
	@mkdir -p build/$*
	@gpus=$$(<build/.cuda-architectures); cmake --preset $* $${gpus:+"-DSHOAL_CUDA_ARCHITECTURES=$$gpus"} \
	  >build/$*/configure.log 2>&1 || { cat build/$*/configure.log; exit 1; }
	@touch $@

build: build/dev/build.ninja
	@cmake --build --preset dev -j $(JOBS)

demo: build/dev/build.ninja
	@cmake --build --preset dev -j $(JOBS) --target shoal_cli
	@tools/demo.sh build/dev/apps/cli/shoal

test: build
	@tools/setup.sh trl
	@tools/setup.sh monitors
	@tools/run_tests.sh dev

unit: build
	@tools/run_tests.sh dev -L unit

# Several hosts as network namespaces: real ssh, Slurm and firewalls. Needs root and what tools/setup.sh hosts installs.
hosts: build
	@tools/setup.sh hosts
	@for each in hosts hosts_faults; do SHOAL_COMMAND=$(CURDIR)/build/dev/apps/cli/shoal OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= \
	  PYTHONPATH=$(CURDIR)/python:$(CURDIR)/build/dev/python_metadata .venv/bin/python3 tests/python/$${each}_test.py || exit 1; done

# What is killed when: SHOAL_KILL_SEED. See docs/reliability.md.
KILLS = 200

kill-test: build
	@SHOAL_KILLS=$(KILLS) SHOAL_COMMAND=$(CURDIR)/build/dev/apps/cli/shoal OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= \
	  .venv/bin/python3 tests/python/kill_test.py

grids: build
	@SHOAL_TEST_SIZE=whole tools/run_tests.sh dev -L grid

# The same bits at every number of ranks, stage and tier: the whole grid. See docs/exactness.md.
exactness: build
	@SHOAL_TEST_SIZE=whole tools/run_tests.sh dev -R '^(every_world|exactness|norm_without_cuts|lamb|train_ranks)_test$$'

# SANITIZE_SECONDS=600: only what that time reaches, and the names of the rest. See tools/sanitize.py.
SANITIZE = .venv/bin/python3 tools/sanitize.py $(if $(SANITIZE_SECONDS),--seconds $(SANITIZE_SECONDS))

# Variants of inputs for so many seconds each, under the address and undefined-behaviour sanitizers. One that goes wrong is left as
# fuzz-TARGET.input; `build/asan/tests/fuzz TARGET FILE` reads it again. What Python reads follows, without them.
FUZZ_SECONDS = 300
FUZZ_SEED = $(shell date +%s)
fuzz: build build/asan/build.ninja
	@cmake --build --preset asan -j $(JOBS) --target fuzz
	@ASAN_OPTIONS=detect_leaks=0 build/asan/tests/fuzz all --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_SEED=$(FUZZ_SEED) OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= \
	  PYTHONPATH=$(CURDIR)/python:$(CURDIR)/build/dev/python_metadata .venv/bin/python3 tests/python/fuzz_test.py

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

PREFIX = ~/.local

install: build/dev/build.ninja
	@cmake --build --preset dev -j $(JOBS) --target shoal_cli
	@tools/install.sh build/dev $(patsubst ~%,$(HOME)%,$(PREFIX))

# For the torch of .venv, or with TORCH=2.15 for that one, in an environment of its own (.venv-torch-2.15).
wheel: setup
	@JOBS=$(JOBS) tools/wheel.sh $(TORCH)

matrix: setup
	@.venv/bin/python3 tools/matrix.py $(TORCH)

docs: setup
	@tools/docs.sh

format: setup
	$(if $(NOT_CPP),$(error make format is for C++ and CUDA, and $(NOT_CPP) is neither. Leave it out of FILES))
	@.venv/bin/clang-format -i $(FILES)

check-format: setup
	$(if $(NOT_CPP),$(error make format is for C++ and CUDA, and $(NOT_CPP) is neither. Leave it out of FILES))
	@.venv/bin/python3 tools/check_format.py

lint: build/dev/build.ninja
	@tools/setup.sh lint
	@printf '%s\n' $(LINT_FILES) | xargs -P $(JOBS) -n 1 clang-tidy -p build/dev --quiet

clean:
	@rm -rf build
