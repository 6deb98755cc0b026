#!/usr/bin/env bash
# slurm_test.sh SOURCES QUINTET: what examples/slurm.sh does, with a made-up SLURM whose srun ends as it is told.
set -euo pipefail
script=$1/examples/slurm.sh
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
mkdir "$folder/bin"
cd "$folder"

# srun: notes how it was called, ends with the next code of `codes`, and may take a node away.
cat > bin/srun <<'END'
#!/usr/bin/env bash
echo "$*" >> calls
code=$(head -n 1 codes)
sed -i 1d codes
[ "$code" != 137 ] || echo node2 > down
exit "$code"
END
cat > bin/scontrol <<'END'
#!/usr/bin/env bash
case $1 in
  requeue) echo "requeue $2" >> calls ;;
  show) printf '%s\n' node1 node2 node3 node4 ;;
esac
END
cat > bin/sinfo <<'END'
#!/usr/bin/env bash
for word; do case $word in --nodes=*) node=${word#*=} ;; esac; done
if grep -qsx "$node" down; then echo 'down*'; else echo alloc; fi
END
chmod +x bin/*

cat > run.toml <<'END'
[model]
name = "tiny"
[batch]
micro_batch = 2
global = 16
END

failures=0
# trial NAME CODES EXPECTED_EXIT EXPECTED_CALLS...: each a pattern for one line, in order.
trial() {
  local name=$1 codes=$2 expected=$3 code=0
  shift 3
  rm -f calls down
  # shellcheck disable=SC2086  # several codes
  printf "%s\n" $codes > codes
  touch calls
  PATH=$PWD/bin:$PATH QUINTET=$quintet TP=2 RUN_FOLDER=. MOST_STARTS=3 RETRY_SECONDS=0 SLURM_JOB_ID=77 \
    SLURM_JOB_NODELIST='node[1-4]' SLURM_NTASKS_PER_NODE=2 SLURM_RESTART_COUNT=${restarts:-0} \
    "$script" "${config:-run.toml}" --zero 1 > said 2>&1 || code=$?
  local lines right=1
  mapfile -t lines < calls
  [ "$code" = "$expected" ] && [ ${#lines[@]} = $# ] || right=0
  local i=0
  for pattern; do
    # shellcheck disable=SC2053  # a pattern
    [[ ${lines[i]:-} == $pattern ]] || right=0
    i=$((i + 1))
  done
  [ $right = 1 ] && return
  failures=$((failures + 1))
  echo "FAILED: $name: exit $code (expected $expected), calls:"
  cat calls said
}
quintet=$2

all="*--nodes=4 --nodelist=node1,node2,node3,node4 --ntasks=8 *train run.toml --tp 2 --pp 1 --set output.resume=true --zero 1"
trial "a run that ends" 0 0 "$all"
trial "time is up" 130 0 "$all" "requeue 77"
trial "a lost rank" "8 0" 0 "$all" "$all"
# Three nodes have room for dp 3, which does not divide 8 micro-batches.
trial "a lost node" "137 0" 0 "$all" "*--nodes=2 --nodelist=node1,node3 --ntasks=4 *"
trial "a loss that is not finite" 5 5 "$all"
trial "a full disk" 7 7 "$all"
trial "losses without end" "8 8 8" 0 "$all" "$all" "$all" "requeue 77"
restarts=50 trial "queued too often" 130 8 "$all"
touch stop
trial "asked to stop" 130 130 "$all"
rm stop
config=none.toml trial "no configuration" "" 3
if command -v shellcheck > /dev/null; then shellcheck "$script" || failures=$((failures + 1)); fi
[ $failures = 0 ]
