# SPDX-License-Identifier: Apache-2.0
# The two doors are `make demo` and `make test`; `make help` lists the rest. Everything lands in build*/bin.

JOBS ?= $(shell nproc)
NVCC := $(shell command -v nvcc 2>/dev/null || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
.DEFAULT_GOAL := help
.PHONY: help deps build demo test test-asan bench fuzz kernels kernels-resources lint clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 20

deps:  ## install what is missing from Debian (read scripts/install_dependencies.sh first if you like)
	@scripts/install_dependencies.sh

build: deps  ## every CPU program, Release, into build/bin
	cmake --preset release --log-level=WARNING
	cmake --build build -j $(JOBS)

build/bin/winnow: deps
	cmake --preset release --log-level=WARNING
	cmake --build build -j $(JOBS) --target winnow

demo: build/bin/winnow  ## build, plan, and ask the embedded model a question about a long document
	@scripts/demo.sh

test: build  ## everything that this machine can check; CUDA code is compiled where nvcc is, and says what it skips
	@scripts/test.sh

test-asan: deps  ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake --preset asan --log-level=WARNING
	cmake --build build-asan -j $(JOBS)
	ctest --test-dir build-asan --output-on-failure -j $(JOBS)

bench: build  ## CPU benchmarks; results are printed, bench/results/ holds the ones we quote
	@scripts/bench.sh

fuzz: deps  ## build the libFuzzer targets and run each for FUZZ_SECONDS (default 60)
	@scripts/fuzz.sh

kernels:  ## the CUDA kernel library and build-cuda/bin/winnow-kernels, linked from build/bin (wants nvcc 13)
	@test -n "$(NVCC)" || { echo "make kernels: nvcc was not found; install the CUDA 13 toolkit or add its bin folder to PATH" >&2; exit 1; }
	cmake --preset cuda --log-level=WARNING -DCMAKE_CUDA_COMPILER=$(NVCC)
	cmake --build build-cuda -j $(JOBS)
	@mkdir -p build/bin && ln -sf ../../build-cuda/bin/winnow-kernels build/bin/winnow-kernels

kernels-resources: kernels  ## registers, spills and shared memory of every kernel into docs/kernel_resources.csv
	@scripts/kernel_resources.py build-cuda > docs/kernel_resources.csv

lint: build  ## clang-format and clang-tidy
	@scripts/lint.sh

clean:  ## remove the build folders
	rm -rf build build-*
