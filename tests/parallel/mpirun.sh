#!/usr/bin/env bash
# mpirun.sh RANKS PROGRAM...: starts a test on so many ranks of one thread each, however few cores there are.
set -euo pipefail
ranks=$1
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
exec mpirun -n "$ranks" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 \
  --mca btl_vader_single_copy_mechanism none "$@"
