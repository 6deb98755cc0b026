# The front door. Each target does all of its own set-up; CMake does the work (see CMakePresets.json).
.PHONY: all build demo test test-fast bench format lint clean help bootstrap
.DEFAULT_GOAL := build

JOBS ?= $(shell nproc)
# Sources we format and lint.
SOURCES = $(shell git ls-files 'src/**/*.h' 'src/**/*.cpp' 'src/**/*.cu' 'src/**/*.cuh' \
                               'tests/**/*.h' 'tests/**/*.cpp' 'bench/**/*.h' 'bench/**/*.cpp')

help:            ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | column -t -s "$$(printf '\t')"

bootstrap:
	@scripts/bootstrap.sh

build: bootstrap ## optimised build: build/quintet
	@cmake --preset release >build-release.log 2>&1 || (cat build-release.log; rm -f build-release.log; exit 1)
	@grep -E '^-- quintet:' build-release.log || true; rm -f build-release.log
	@cmake --build --preset release --target quintet -j $(JOBS)

demo: build      ## a small model, trained and explained, in about a minute
	@scripts/demo.sh

test: bootstrap  ## everything: unit, golden, learning, fuzz, and the sanitizer builds
	@scripts/test.sh all

test-fast: bootstrap ## the tests to run at every change, under two minutes once built
	@scripts/test.sh fast

bench: bootstrap ## benchmarks, each printed against a ceiling measured in the same run
	@scripts/bench.sh

format:          ## clang-format everything in place
	@clang-format -i $(SOURCES)

lint: build      ## clang-format in check mode, then clang-tidy
	@clang-format --dry-run -Werror $(SOURCES)
	@clang-tidy -p build --quiet --extra-arg=-Wno-unknown-warning-option $(filter %.cpp,$(filter src/%,$(SOURCES)))

clean:           ## remove every build folder
	rm -rf build build-debug build-asan build-tsan
