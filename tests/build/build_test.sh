#!/usr/bin/env bash
# build_test.sh SOURCE: what a user meets who builds us: which packages are asked for, and that each thing that can be
# in the way is one line that says what to do. Commands of other systems (an old CMake, apt without a network) are
# played by scripts put before the real ones in PATH.
set -euo pipefail
source=$1
cd "$source"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CI CMAKE_ARGS BOOTSTRAP BUILD
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
# refuses WHAT PATTERN COMMAND...: the command fails, and all it prints is one line with the pattern in it.
refuses() {
  local what=$1 pattern=$2
  shift 2
  if "$@" >"$work/out" 2>&1; then fail "$what: accepted"; fi
  if [ "$(wc -l <"$work/out")" != 1 ] || ! grep -qE "$pattern" "$work/out"; then
    fail "$what: expected one line with '$pattern', found:"
    cat "$work/out"
  fi
}
# play NAME BODY: a command of that name for the next `with_played`.
play() {
  mkdir -p "$work/bin"
  printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
with_played() { PATH="$work/bin:$PATH" "$@"; }

# 1. Every library that CMake looks for has its package in the bootstrap, and is looked for in that one file.
packages=$(sed -nE 's/^quintet_(package|system_library)\([A-Za-z0-9_]+ "?([a-z0-9+-]+).*/\2/p' cmake/libraries.cmake
  grep -oE '\(lib[a-z0-9-]+-dev\)' cmake/libraries.cmake | tr -d '()')
[ "$(wc -w <<<"$packages")" -ge 12 ] || fail "cmake/libraries.cmake: read only these packages: $packages"
for package in $packages; do
  grep -qE "(^|[ (:])${package//+/\\+}($|[ )])" scripts/bootstrap.sh || fail "scripts/bootstrap.sh lacks $package"
done
elsewhere=$(grep -lE '^ *find_(package|library|path)\(' CMakeLists.txt */CMakeLists.txt cmake/*.cmake |
  grep -vE '^(cmake/libraries|cmake/cuda)\.cmake$|^bench/CMakeLists\.txt$' || true)
[ -z "$elsewhere" ] || fail "libraries are looked for outside of cmake/libraries.cmake: $elsewhere"

# 2. The program needs no test packages, and a path may have spaces.
configure() { scripts/configure.sh release "$work/a folder" -DQUINTET_CUDA=OFF "$@"; }
no_gtest=-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON
configure $no_gtest >"$work/out" 2>&1 || { fail "without GoogleTest"; cat "$work/out"; }
grep -q "tests left out" "$work/out" || fail "without GoogleTest: not said"
configure $no_gtest -DQUINTET_TESTS=OFF >"$work/out" 2>&1 || { fail "QUINTET_TESTS=OFF"; cat "$work/out"; }
refuses "tests without GoogleTest" "libgtest-dev.*libgmock-dev.*bootstrap" configure $no_gtest -DQUINTET_TESTS=ON
refuses "without fmt" "fmt \(libfmt-dev\);.*bootstrap" \
  configure -DQUINTET_TESTS=OFF -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DCMAKE_DISABLE_FIND_PACKAGE_GTest=OFF

# 3. Warnings are errors for developers and in CI alone.
werror() { grep -c -- -Werror "$work/a folder/build.ninja" || true; }
restore=(-DCMAKE_DISABLE_FIND_PACKAGE_fmt=OFF -DQUINTET_TESTS=OFF)
configure "${restore[@]}" >/dev/null
[ "$(werror)" = 0 ] || fail "warnings are errors for users"
CI=1 configure >/dev/null
[ "$(werror)" != 0 ] || fail "warnings are no errors with CI=1"

# 4. What may be in the way.
play cmake 'echo "cmake version 3.18.4"'
refuses "an old CMake" "CMake 3.18.4 is too old, 3\.[0-9]+ or newer" with_played configure
rm "$work/bin/cmake"
: >"$work/file"
refuses "a build folder that cannot be" "cannot write to the build folder.*make BUILD=" \
  scripts/configure.sh release "$work/file/folder"

# Nothing installed: as a user without sudo, as one whose sudo wants a password, and as root without a network.
play dpkg-query 'exit 1'
play id 'echo 1000'
play sudo 'exit 1'
refuses "sudo with a password" "sudo wants a password; run: sudo apt-get install .*libfmt-dev" \
  with_played scripts/bootstrap.sh </dev/null
play id 'echo 0'
play apt-get 'echo "W: Temporary failure resolving debian"; [ "$1" = update ] || { echo "E: Unable to locate package cmake"; exit 100; }'
with_played scripts/bootstrap.sh >"$work/out" 2>&1 && fail "no network: accepted"
grep -qE '^bootstrap: apt-get failed \(Temporary failure resolving debian\).*apt-get install' "$work/out" ||
  { fail "no network: not said"; cat "$work/out"; }
grep -q gtest "$work/out" && fail "building the program asks for GoogleTest"
with_played scripts/bootstrap.sh test >"$work/out" 2>&1 && fail "no network: accepted"
grep -q 'libgtest-dev libgmock-dev' "$work/out" || fail "tests do not ask for GoogleTest"
play apt-get '[ "$1" = update ] || { echo "E: Unable to locate package libcli11-dev"; exit 100; }'
with_played scripts/bootstrap.sh >"$work/out" 2>&1 && fail "an old release: accepted"
grep -q 'libcli11-dev: this release has no such package; Debian 12' "$work/out" || fail "an old release: not said"
BOOTSTRAP=off with_played scripts/bootstrap.sh test >"$work/out" 2>&1 || fail "BOOTSTRAP=off installs"

# 5. Always at least one compiler.
[ "$(scripts/jobs.sh)" -ge 1 ] || fail "scripts/jobs.sh: $(scripts/jobs.sh)"

[ "$failures" = 0 ] && echo "all well"
