# The front door. Each target does all of its own set-up; CMake does the work (see CMakePresets.json).
#
#   make BUILD=/elsewhere build        a build folder anywhere; the source tree is only read
#   make CMAKE_ARGS=-DQUINTET_CUDA=OFF build
#   make BOOTSTRAP=off build           install no packages
.PHONY: all build demo test test-fast bench install package format lint clean help
.DEFAULT_GOAL := build

BUILD ?= build
PREFIX ?= /usr/local
ifndef JOBS
JOBS := $(shell scripts/jobs.sh)
endif
CMAKE_ARGS ?=
export BUILD JOBS BOOTSTRAP CMAKE_ARGS
# Sources we format and lint.
SOURCES = $(shell git ls-files 'src/**/*.h' 'src/**/*.cpp' 'src/**/*.cu' 'src/**/*.cuh' \
                               'tests/**/*.h' 'tests/**/*.cpp' 'bench/**/*.h' 'bench/**/*.cpp')

help:            ## this list
	@sed -nE 's/^([a-z-]+): .*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r target what; do \
	  printf '%-12s %s\n' "$$target" "$$what"; done

build:           ## optimised build: build/quintet
	@scripts/bootstrap.sh
	@scripts/configure.sh release "$(BUILD)" $(CMAKE_ARGS)
	@cmake --build "$(BUILD)" --target quintet -j "$(JOBS)"

demo: build      ## a small model, trained and explained, in about a minute
	@scripts/demo.sh

test:            ## everything: unit, golden, learning, fuzz, and the sanitizer builds
	@scripts/bootstrap.sh test
	@scripts/test.sh all

test-fast:       ## the tests to run at every change, under two minutes once built
	@scripts/bootstrap.sh test
	@scripts/test.sh fast

bench:           ## benchmarks, each printed against a ceiling measured in the same run
	@scripts/bootstrap.sh
	@scripts/bench.sh

install: build   ## the program and its examples, below PREFIX (/usr/local)
	@cmake --install "$(BUILD)" --prefix "$(PREFIX)" --strip

package: build   ## a Debian package of the program, in the build folder
	@scripts/bootstrap.sh package
	@cd "$(BUILD)" && cpack -G DEB

format:          ## clang-format everything in place
	@clang-format -i $(SOURCES)

lint: build      ## clang-format in check mode, then clang-tidy
	@clang-format --dry-run -Werror $(SOURCES)
	@clang-tidy -p "$(BUILD)" --quiet --extra-arg=-Wno-unknown-warning-option $(filter %.cpp,$(filter src/%,$(SOURCES)))

clean:           ## remove every build folder
	rm -rf "$(BUILD)" "$(BUILD)-debug" "$(BUILD)-asan" "$(BUILD)-tsan"
