#!/usr/bin/env bash
# Runs the tests. `fast`: the release build's fast tests. `all`: every test of the release build, then the
# tests labelled for each sanitizer under that sanitizer. Stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
folder=${BUILD:-build}
jobs=${JOBS:-$(scripts/jobs.sh)}

# Open MPI refuses root and more ranks than cores unless told; tests start ranks of one thread each.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
# A test must not depend on how many cores the machine has.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
# Nor on what else runs on it: threads that wait sleep.
export OMP_WAIT_POLICY=passive

step() { printf '\n== %s\n' "$*"; }
build() {  # PRESET FOLDER TARGET
  step "build: $1"
  # shellcheck disable=SC2086  # several options
  scripts/configure.sh "$1" "$2" -DQUINTET_TESTS=ON ${CMAKE_ARGS:-}
  cmake --build "$2" -j "$jobs" --target "$3"
}
# One more at a time than there are cores: some wait more than they compute.
run() { ctest --test-dir "$1" --output-on-failure -j "$((jobs + 1))" "${@:2}"; }

if [ "$what" = fast ]; then
  build release "$folder" tests_fast
  step "test: release, fast"
  run "$folder" -L fast
  exit 0
fi
build release "$folder" all
step "test: release, all"
run "$folder"

build asan-ubsan "$folder-asan" tests_asan
step "test: address and undefined-behaviour sanitizers"
ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
  run "$folder-asan" -L asan

build tsan "$folder-tsan" tests_tsan
step "test: thread sanitizer"
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 run "$folder-tsan" -L tsan
