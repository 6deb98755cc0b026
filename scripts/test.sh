#!/usr/bin/env bash
# Runs the tests. `fast`: the release build's fast tests. `all`: every test of the release build, then the
# tests labelled for each sanitizer under that sanitizer. Stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
jobs=${JOBS:-$(nproc)}

# Open MPI refuses root and more ranks than cores unless told; tests start ranks of one thread each.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
# A test must not depend on how many cores the machine has.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
# Nor on what else runs on it: threads that wait sleep.
export OMP_WAIT_POLICY=passive

step() { printf '\n== %s\n' "$*"; }
build() {
  step "build: $1"
  cmake --preset "$1" | grep -E '^-- quintet:|rror' || true
  cmake --build --preset "$1" -j "$jobs" ${2:+--target "$2"}
}

build release
if [ "$what" = fast ]; then
  step "test: release, fast"
  ctest --preset release -L fast -j "$jobs"
  exit 0
fi
step "test: release, all"
ctest --preset release -j "$jobs"

build asan-ubsan tests_asan
step "test: address and undefined-behaviour sanitizers"
ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
  ctest --preset asan-ubsan -L asan -j "$jobs"

build tsan tests_tsan
step "test: thread sanitizer"
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 ctest --preset tsan -L tsan -j "$jobs"
