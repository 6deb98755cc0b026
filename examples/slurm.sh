#!/usr/bin/env bash
# A run of days under SLURM that survives time limits, preemption and lost nodes:
#
#   sbatch examples/slurm.sh run.toml
#
# - Five minutes before the time limit the ranks get SIGUSR2: they save after the step at hand and end with exit
#   code 130; the job queues itself again and goes on from there.
# - When a rank is lost the run starts again from its newest checkpoint, on the nodes that are left (--no-kill keeps
#   the job alive). With fewer of them it has fewer data-parallel ranks; batch.global in run.toml keeps every
#   step's samples the same. With too few nodes, or after MOST_STARTS in one job, it queues itself again.
# - What starting again cannot mend (settings, damaged files, a loss that is not finite, a full disk) ends the job.
#
# To end it for good, saving first: touch RUN_FOLDER/stop; scancel --signal=USR2 JOB
# run.toml must set output.folder (the same as RUN_FOLDER, on a file system that all nodes share), output.save_every
# and batch.global.
#SBATCH --job-name=quintet
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --time=24:00:00
#SBATCH --signal=USR2@300
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
#SBATCH --output=quintet-%j.log
set -uo pipefail

CONFIG=${1:?usage: sbatch slurm.sh run.toml [more arguments of quintet train]}
shift
TP=${TP:-8} PP=${PP:-1}             # stay, whatever happens
RUN_FOLDER=${RUN_FOLDER:-runs/big}  # output.folder
QUINTET=${QUINTET:-quintet}
MOST_STARTS=${MOST_STARTS:-5}       # in one job
MOST_REQUEUES=${MOST_REQUEUES:-50}
PER_NODE=${SLURM_NTASKS_PER_NODE:-8}

say() { echo "$(date '+%F %T') slurm.sh: $*"; }

# Queues the job again, or says why not.
requeue() {
  if [ -e "$RUN_FOLDER/stop" ]; then
    say "$RUN_FOLDER/stop is there: not queued again"
    exit 130
  fi
  if [ "${SLURM_RESTART_COUNT:-0}" -ge "$MOST_REQUEUES" ]; then
    say "queued again $MOST_REQUEUES times already: $1"
    exit 8
  fi
  say "$1: queued again (time $((${SLURM_RESTART_COUNT:-0} + 1)) of $MOST_REQUEUES)"
  scontrol requeue "$SLURM_JOB_ID" && exit 0
  say "scontrol requeue failed"
  exit 8
}

# The job's nodes that SLURM takes for healthy, one per line.
nodes_left() {
  scontrol show hostnames "$SLURM_JOB_NODELIST" | while read -r node; do
    case $(sinfo --noheader --nodes="$node" --format=%t | head -n 1) in
      down* | drain* | drng* | fail* | unk* | no_respond* | *\*) ;;
      *) echo "$node" ;;
    esac
  done
}

# Whether the run can be on this many ranks.
can_be() { "$QUINTET" plan "$CONFIG" --ranks "$1" --tp "$TP" --pp "$PP" "${MORE[@]}" > /dev/null; }

# The most ranks on this many nodes that the layout and batch.global allow; 0: none.
ranks_on() {
  local dp=$(($1 * PER_NODE / (TP * PP)))
  for (( ; dp >= 1; --dp)); do
    local ranks=$((dp * TP * PP))
    if can_be "$ranks" 2> /dev/null; then
      echo "$ranks"
      return
    fi
  done
  echo 0
}

MORE=("$@")
can_be $((TP * PP)) || exit  # wrong on any number of ranks, and said so
for ((start = 1; start <= MOST_STARTS; ++start)); do
  mapfile -t nodes < <(nodes_left)
  ranks=$(ranks_on "${#nodes[@]}")
  [ "$ranks" -gt 0 ] || requeue "${#nodes[@]} nodes are left, too few for tp $TP x pp $PP"
  needed=$(((ranks + PER_NODE - 1) / PER_NODE))
  nodes=("${nodes[@]:0:needed}")
  list=$(IFS=,; echo "${nodes[*]}")
  say "start $start of $MOST_STARTS: $ranks ranks on $list"
  # output.resume=true starts from nothing where there is no checkpoint yet.
  srun --mpi=pmix --nodes="$needed" --nodelist="$list" --ntasks="$ranks" --ntasks-per-node="$PER_NODE" \
    --kill-on-bad-exit=1 \
    "$QUINTET" train "$CONFIG" --tp "$TP" --pp "$PP" --set output.resume=true "${MORE[@]}"
  code=$?
  case $code in
    0) say "done"; exit 0 ;;
    130) requeue "time is up" ;;
    2 | 3 | 4 | 5 | 6 | 7) say "ended with exit code $code, which starting again cannot mend"; exit "$code" ;;
    *) say "lost (exit code $code)" ;;  # 8, 1, 128 + a signal, srun's own
  esac
  sleep "${RETRY_SECONDS:-15}"
done
requeue "started $MOST_STARTS times without an end"
