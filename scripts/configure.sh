#!/usr/bin/env bash
# configure.sh PRESET FOLDER [CMAKE-OPTION...]: configures a build folder, inside the source tree or elsewhere, and
# prints what was found. What stands in the way is said in one line where we know it, else CMake's own words follow.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
folder=$2
shift 2
refuse() {
  echo "configure: $*" >&2
  exit 1
}

command -v cmake >/dev/null || refuse "no cmake in PATH: install it (Debian: apt-get install cmake) and run make again"
needed=$(sed -nE 's/^cmake_minimum_required\(VERSION ([0-9.]+)\)/\1/p' CMakeLists.txt)
found=$(cmake --version | sed -nE '1s/^cmake version ([0-9.]+).*/\1/p')
[ "$(printf '%s\n' "$needed" "$found" | sort -V | head -1)" = "$needed" ] ||
  refuse "CMake $found is too old, $needed or newer is needed: pip install cmake, or see cmake.org/download"
mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] ||
  refuse "cannot write to the build folder '$folder': name another one, as in make BUILD=\$HOME/quintet-build build"

log=$folder/configure.log
if ! cmake --preset "$preset" -B "$folder" "$@" >"$log" 2>&1; then
  # Our own refusals are single lines that begin with our name; those of CMake are shown whole.
  grep -E '^ *quintet: ' "$log" | sed -E 's/^ *quintet:/configure:/' >&2 || cat "$log" >&2
  exit 1
fi
grep -E '^-- quintet:' "$log" || true
