#!/usr/bin/env bash
# Installs what building and testing Quintet needs. On Debian and Ubuntu it installs the packages that
# are missing (as root, or through sudo); elsewhere it prints the list. When nothing is missing it does
# nothing and says nothing, so `make` calls it every time.
set -euo pipefail

packages=(
  g++ cmake ninja-build make git
  libopenblas-openmp-dev   # GEMM; the OpenMP build shares our threads instead of starting its own
  libopenmpi-dev openmpi-bin
  libfmt-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libbenchmark-dev
  libsentencepiece-dev     # BPE models, training of vocabularies, and the oracle of the tokenizer's tests
  libsimdjson-dev zlib1g-dev libzstd-dev libxxhash-dev  # corpora: JSON lines, .gz, .zst, checksums
  liblzma-dev libbz2-dev libsnappy-dev liblz4-dev       # corpora: .xz, .bz2, pages of Parquet files
)

if ! command -v dpkg-query >/dev/null 2>&1; then
  # Not Debian: we cannot know the package names. A stamp keeps us from repeating ourselves.
  stamp="$(dirname "$0")/../build/.bootstrap-told"
  [ -e "$stamp" ] && exit 0
  echo "bootstrap: this is not Debian or Ubuntu; Quintet needs these (Debian's names):"
  printf '  %s\n' "${packages[@]}"
  mkdir -p "$(dirname "$stamp")" && touch "$stamp"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "bootstrap: missing packages and neither root nor sudo; ask an administrator for:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "bootstrap: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
