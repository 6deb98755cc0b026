#!/usr/bin/env bash
# The README's commands as a new user runs them: in a bare Debian that has no compiler, no library and nothing that was
# ever installed by hand, on a clean clone of HEAD (what is not committed is not there).
#
#   scripts/fresh.sh ["make demo" "make test" ...]       the commands; these two when none are given
#   SUITE=trixie scripts/fresh.sh "make demo"            another release than bookworm
#   SUITE=noble MIRROR="deb [trusted=yes] URL-OF-AN-UBUNTU-MIRROR noble main universe" scripts/fresh.sh
#   FRESH=/folder                                        where bare systems are kept (/var/tmp/quintet-fresh)
#
# Needs root, mmdebstrap and a network; says so and skips where it has them not. The bare system is made once and kept as a
# tarball; every run starts from it in a new folder, removed at its end. Exits with 1 at the first command that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${SUITE:-bookworm}
folder=${FRESH:-/var/tmp/quintet-fresh}
say() { echo "fresh: $*"; }
skip() {
  say "skipped: $*"
  exit 0
}

[ "$(id -u)" = 0 ] || skip "only root can make a bare system and change into it"
unshare --mount --pid --fork true 2>/dev/null || skip "mount and process namespaces are not allowed here"
command -v mmdebstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq mmdebstrap; } >/dev/null 2>&1 ||
  skip "mmdebstrap is not there and cannot be installed"
mkdir -p "$folder"
work=$(mktemp -d "$folder/run.XXXXXX")
child=
trap '[ -z "$child" ] || kill -KILL "$child" || true; wait; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM HUP

# apt as the host has it: proxies, and the mirror when the host runs the same release.
apt_conf=()
for file in /etc/apt/apt.conf.d/*; do
  if grep -qiE 'proxy|acquire' "$file" 2>/dev/null; then apt_conf+=("$file"); fi
done
if [ ! -e "$folder/$suite.tar" ]; then
  sources=()
  if [ -n "${MIRROR:-}" ]; then
    sources=("$MIRROR")
  elif grep -q "^VERSION_CODENAME=$suite$" /etc/os-release; then
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources; do
      if grep -qw "$suite" "$file" 2>/dev/null; then sources+=("$file"); fi
    done
  fi
  say "making a bare $suite"
  mmdebstrap --quiet --variant=minbase --include=apt,ca-certificates,make,git "${apt_conf[@]/#/--aptopt=}" \
    "$suite" "$work/bare.tar" "${sources[@]}" || skip "a bare $suite could not be made"
  mv "$work/bare.tar" "$folder/$suite.tar"
fi

root=$work/root
mkdir "$root"
tar -C "$root" -xf "$folder/$suite.tar"
for file in "${apt_conf[@]}" /etc/resolv.conf /etc/hosts; do
  cp -L "$file" "$root$file"
done
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/fresh"  # the folder does not outlive us: no waiting for the disk
echo 'Acquire::Retries "5";' >"$root/etc/apt/apt.conf.d/99fresh"  # a mirror's bad moment is not our failure
git clone -q --no-hardlinks . "$root/root/quintet"
say "$suite, commit $(git rev-parse --short HEAD)"
[ -z "$(git status --porcelain --untracked-files=no)" ] || say "changes that are not committed are left out"

# Mounts and processes of the bare system live in namespaces of their own: however we end, none is left. This shell is the
# first process in there and stays: signals that end others do not end a first process, which make does not expect.
inside='root=$1; shift
  mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
  chroot "$root" /usr/bin/env -i "$@"
  exit $?'
environment=(HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb LANG=C.UTF-8)
for name in CI JOBS http_proxy https_proxy no_proxy; do
  [ -z "${!name:-}" ] || environment+=("$name=${!name}")
done
in_it() {
  unshare --mount --propagation private --pid --fork --kill-child bash -c "$inside" fresh "$root" "${environment[@]}" \
    bash -c "cd /root/quintet && $1" &
  child=$!
  local status=0
  wait "$child" || status=$?
  child=
  return "$status"
}
in_it "apt-get update -qq -o APT::Update::Error-Mode=any >/dev/null 2>&1" || skip "no package can be had from the network"
[ $# -gt 0 ] || set -- "make demo" "make test"
for command in "$@"; do
  say "$command"
  start=$SECONDS
  in_it "$command" || { say "FAILED after $((SECONDS - start)) s: $command"; exit 1; }
  say "passed in $((SECONDS - start)) s: $command"
done
