#!/usr/bin/env bash
# Prints how many compilers may run at once: one a core, and 2 GiB of free memory for each (torch's headers need it).
set -euo pipefail
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)  # it would believe them
free_gib=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
by_memory=$((free_gib / 2))
jobs=$((cores < by_memory ? cores : by_memory))
echo $((jobs < 1 ? 1 : jobs))
