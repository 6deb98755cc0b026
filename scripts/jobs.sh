#!/usr/bin/env bash
# Prints how many compilers to run at once: one for each core, but no more than memory has room for. The largest
# sources, tests under a sanitizer, take most of what is counted here for each; so two gigabytes are enough, slowly.
set -euo pipefail
megabytes_each=1300

available=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null || true)
# A container may be allowed less than the machine has.
for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  bytes=$(cat "$limit" 2>/dev/null || true)
  case "$bytes" in
    '' | *[!0-9]*) ;;
    *) [ "${#bytes}" -gt 15 ] || [ "$((bytes / 1048576))" -ge "${available:-0}" ] || available=$((bytes / 1048576)) ;;
  esac
done
jobs=$(nproc 2>/dev/null || echo 1)
room=$((${available:-1000000} / megabytes_each))
[ "$room" -ge "$jobs" ] || jobs=$room
[ "$jobs" -ge 1 ] || jobs=1
echo "$jobs"
