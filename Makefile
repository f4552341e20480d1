# SPDX-License-Identifier: Apache-2.0
# `make demo` and `make test` are all a newcomer needs; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

BUILD ?= build/release
# A Python with PyTorch 2.11, for the tests of the operators in PyTorch; without one they are skipped.
SPARSED_PYTHON ?=
python_option := $(if $(SPARSED_PYTHON),-DSPARSED_PYTHON=$(SPARSED_PYTHON))

.PHONY: help setup build demo test unit bench asan tsan cuda format clean

help:  ## This list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup:  ## Install what is missing (packages, LibTorch, crates)
	@./tools/setup.sh

build: setup  ## Build the server, sparsectl and the tests
	@cmake --preset release $(python_option)
	@cmake --build --preset release

demo: setup  ## Build, start a server with the embedded model, stream two answers, stop it
	@cmake --preset release -DSPARSED_TESTS=OFF -B build/demo
	@cmake --build build/demo --target sparsed sparsectl
	@./tools/demo.sh build/demo

test: build  ## Build and run all tests
	@./tools/run_tests.sh $(BUILD)

unit: build  ## The tests that need no server and no golden decode
	@ctest --test-dir $(BUILD) --output-on-failure -LE slow

asan: setup  ## All tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@cmake --workflow --preset asan

tsan: setup  ## The threaded parts under ThreadSanitizer
	@cmake --workflow --preset tsan

cuda:  ## Build the operators with CUDA kernels and run their tests (skipped without a GPU)
	@./tools/setup.sh --cuda
	@cmake --preset cuda $(python_option)
	@cmake --build --preset cuda
	@ctest --preset cuda

bench: setup  ## Measure time per step and tokens per second on this machine
	@./bench/run.sh

format:  ## Format all C++ files
	@git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

clean:  ## Remove build folders (downloads stay in .deps)
	@rm -rf build
