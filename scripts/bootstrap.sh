#!/usr/bin/env bash
# bootstrap.sh [test] [package]: installs what building Quintet needs, and what its tests or its Debian package need on
# top. On Debian and Ubuntu it installs what is missing (as root, or through sudo); elsewhere it prints the list. When
# nothing is missing it does nothing and says nothing, so `make` calls it every time; `make BOOTSTRAP=off` does not.
set -euo pipefail

# Commands that may come from elsewhere than a package, and the package that has them.
program_tools=(g++:g++ cmake:cmake ninja:ninja-build mpirun:openmpi-bin)
program=(
  libopenblas-openmp-dev   # GEMM; the OpenMP build shares our threads instead of starting its own
  libopenmpi-dev
  libfmt-dev libcli11-dev nlohmann-json3-dev
  libsentencepiece-dev     # BPE models, training of vocabularies, and the oracle of the tokenizer's tests
  libsimdjson-dev zlib1g-dev libzstd-dev libxxhash-dev  # corpora: JSON lines, .gz, .zst, checksums
  liblzma-dev libbz2-dev libsnappy-dev liblz4-dev       # corpora: .xz, .bz2, pages of Parquet files
  libsqlite3-dev libeigen3-dev  # the laboratory: its store of runs, its models of time
  iproute2                 # emulated clusters: network namespaces, links of a given bandwidth
)
test=(libgtest-dev libgmock-dev)
package_tools=(file:file dpkg-shlibdeps:dpkg-dev)

tools=("${program_tools[@]}")
packages=("${program[@]}")
for what in "$@"; do
  case "$what" in
    test) packages+=("${test[@]}") ;;
    package) tools+=("${package_tools[@]}") ;;
    *) echo "bootstrap: '$what' is neither test nor package" >&2 && exit 2 ;;
  esac
done
[ "${BOOTSTRAP:-on}" != off ] || exit 0

missing=()
for tool in "${tools[@]}"; do
  command -v "${tool%%:*}" >/dev/null 2>&1 || missing+=("${tool##*:}")
done
if ! command -v dpkg-query >/dev/null 2>&1; then
  # Not Debian: we cannot know what is there. Once a build is configured, it was.
  [ -e "${BUILD:-build}/CMakeCache.txt" ] ||
    echo "bootstrap: neither Debian nor Ubuntu; install what these packages of theirs hold: ${missing[*]} ${packages[*]}"
  exit 0
fi
installed=" $(dpkg-query -W -f='${db:Status-Abbrev}${Package} ' "${packages[@]}" 2>/dev/null || true)"
for package in "${packages[@]}"; do
  [[ "$installed" == *" ii $package "* ]] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=(env)
[ "$(id -u)" -eq 0 ] || as_root=(sudo env)  # sudo clears our environment
by_hand="apt-get install --no-install-recommends ${missing[*]}"
refuse() {
  echo "bootstrap: $*" >&2
  exit 1
}
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 ||
    refuse "packages are missing, and we are neither root nor have sudo; ask an administrator to run: $by_hand"
  # Without a terminal to ask for a password at, sudo would only complain.
  sudo -n true 2>/dev/null || [ -t 0 ] ||
    refuse "packages are missing, and sudo wants a password; run: sudo $by_hand"
fi
echo "bootstrap: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
as_root+=(DEBIAN_FRONTEND=noninteractive)
# A source that does not answer is no reason to stop: what is needed may come from another.
"${as_root[@]}" apt-get update -qq >"$log" 2>&1 || true
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >>"$log" 2>&1 || {
  why=$(grep -m 1 -E 'Temporary failure|Could not (resolve|connect)|unreachable' "$log" || grep -m 1 '^E: ' "$log" || tail -n 1 "$log")
  case "$why" in
    *"Unable to locate"*) refuse "apt-get: ${why#[EW]: }: this release has no such package; Debian 12, Ubuntu 24.04 and newer ones do" ;;
  esac
  refuse "apt-get failed (${why#[EW]: }); with a network, and as root, run: apt-get update && $by_hand"
}
