#!/usr/bin/env bash
# commands_test.sh SOURCE QUINTET [PAGE|help...]: runs every command that README.md, CONTRIBUTING.md, docs/ and the help texts
# show, in order, each page in a fresh folder that has what a clone has. Fails where one ends badly, where an inline
# `quintet ...` names a subcommand or option that does not exist, or a `section.key` that is none.
#
# Rules, so that it takes a minute or two; the report says where they were used:
# - Blocks after <!-- not run: REASON -->, and examples of help texts in help_not_run.txt, are listed and not run.
# - `make TARGET` is `make -n TARGET`: the target is there. The program was built by it.
# - `train` runs of which the command does not say how many steps they have get $STEPS, but for blocks after
#   <!-- whole, says: WORDS -->, of which the last command must print the words, too.
# - `plan` and `sweep` read shipped files alone: one that has run is not run again for another page.
# QUINTET_DOCS_WHOLE=1: runs keep their length.
set -euo pipefail
export LC_ALL=C.UTF-8
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$1" && pwd)
program=$(realpath "$2")
shift 2
readonly STEPS=40
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$program" "$work/bin/quintet"
export PATH="$work/bin:$PATH"
# Ranks as root, and more of them than cores; threads that wait sleep.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMP_WAIT_POLICY=passive
unset CI CMAKE_ARGS BOOTSTRAP BUILD

ran=0 not_run=0 failures=0
declare -A ran_before=()
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# What a clone has, and build/quintet; copies, since commands write beside what they read.
fresh_folder() {
  local folder=$1 part
  mkdir -p "$folder/build" "$folder/tests"
  for part in bench docs examples machines studies; do cp -r "$source/$part" "$folder/"; done
  cp -r "$source/tests/goldens" "$folder/tests/"
  mkdir "$folder/tests/lab"
  cp -r "$source/tests/lab/fixtures" "$folder/tests/lab/"
  ln -s "$program" "$folder/build/quintet"
}

# one_command WHERE FOLDER COMMAND
one_command() {
  local where=$1 folder=$2 command=$3 note="" began took code=0
  local plain=${command//build\/quintet/quintet}
  case $plain in
    "quintet plan "* | "quintet sweep "*)
      if [ -n "${ran_before[$plain]:-}" ]; then
        echo "$where: as ${ran_before[$plain]}: $command"
        return
      fi
      ran_before[$plain]=$where
      ;;
    make\ *)
      folder=$source
      command="make -n ${command#make }"
      ;;
  esac
  if [ -z "${QUINTET_DOCS_WHOLE:-}" ] && [[ $plain =~ ^quintet\ (launch\ .*--\ )?train($|\ ) ]] &&
    [[ $plain != *train.steps* ]]; then
    command+=" --set train.steps=$STEPS"
    note=" (shortened)"
  fi
  began=${EPOCHREALTIME/./}
  (cd "$folder" && timeout 900 bash -c "$command") < /dev/null > "$work/out" 2>&1 || code=$?
  ran=$((ran + 1))
  took=$(((${EPOCHREALTIME/./} - began) / 100000))  # tenths of a second
  echo "$where: $((took / 10)).$((took % 10)) s$note: $command"
  if [ "$code" != 0 ]; then
    fail "$where: exit code $code: $command"
    tail -n 15 "$work/out" | sed 's/^/    /'
  fi
}

page() {
  local page=$1 folder="$work/${1//\//-}" line why command
  fresh_folder "$folder"
  awk -f "$here/commands.awk" "$source/$page" > "$work/commands"
  while IFS=$'\t' read -r line why command <&3; do
    if [ "$why" = - ]; then
      one_command "$page:$line" "$folder" "$command"
    elif [ "$why" = whole ]; then
      QUINTET_DOCS_WHOLE=1 one_command "$page:$line" "$folder" "$command"
    elif [ "$why" = says ]; then
      grep -qF "$command" "$work/out" || fail "$page:$line: \"$command\" was not printed, but: $(cat "$work/out")"
    else
      echo "$page:$line: not run, $why: $command"
      not_run=$((not_run + 1))
    fi
  done 3< "$work/commands"
  rm -rf "$folder"
}

# --- Help texts: all subcommands, and what each says ---------------------------------------------------------
declare -A help=()  # "data build" -> its text
order=()
read_help() {  # [WORDS]
  local words=$1 sub
  # shellcheck disable=SC2086  # several words
  help[${words:-.}]=$(quintet $words --help)
  [ -z "$words" ] || order+=("$words")
  for sub in $(awk '/^Subcommands:/ { on = 1; next } on && /^  [a-z]/ { print $1 }' <<< "${help[${words:-.}]}"); do
    read_help "${words:+$words }$sub"
  done
}

help_examples() {
  local folder="$work/help" words command prefix reason
  local -A used=()
  fresh_folder "$folder"
  (cd "$folder" && bash "$here/given.sh" "$source") < /dev/null > "$work/out" 2>&1 || {
    fail "given.sh"
    tail "$work/out"
    return
  }
  for words in "${order[@]}"; do
    while read -r command <&3; do
      reason=""
      while IFS=$'\t' read -r prefix why <&4; do
        if [[ $prefix != \#* && $command == "$prefix"* ]]; then
          reason=$why
          used[$prefix]=1
        fi
      done 4< "$here/help_not_run.txt"
      if [ -n "$reason" ]; then
        echo "quintet $words --help: not run, $reason: $command"
        not_run=$((not_run + 1))
      else
        one_command "quintet $words --help" "$folder" "$command"
      fi
    done 3< <(awk -f "$here/help.awk" <<< "${help[${words:-.}]}")
  done
  while IFS=$'\t' read -r prefix why; do
    [[ $prefix == \#* ]] || [ -n "${used[$prefix]:-}" ] || fail "help_not_run.txt: no example begins with \"$prefix\""
  done < "$here/help_not_run.txt"
}

# --- Commands and keys in running text -----------------------------------------------------------------------
# Text between backticks outside of blocks, one span per line, also over the end of a line.
spans() { awk '/^ *```/ { inside = !inside; next } !inside { printf "%s ", $0 }' "$1" | grep -oE '`[^`]+`' | tr -d '`'; }

inline_commands() {
  local page=$1 span words word
  while read -r span; do
    words=""
    for word in ${span//[\[\]]/ }; do
      case $word in
        quintet) ;;
        --) words="" ;;  # then the command that `launch` starts
        --*)
          grep -qwe "${word%%=*}" <<< "${help[${words:-.}]}" || fail "$page: quintet $words has no $word: \`$span\`"
          ;;
        *)
          if [ -n "${help[${words:+$words }$word]:-}" ]; then
            words+="${words:+ }$word"
          elif [ -z "$words" ]; then
            fail "$page: there is no quintet $word: \`$span\`"
            break
          fi
          ;;
      esac
    done
  done < <(spans "$source/$page" | sed 's/  */ /g' | grep -E '^quintet [a-z]' | sort -u)
}

keys() {
  local page=$1 key
  while read -r key; do
    grep -qxF "$key" "$work/keys" || fail "$page: there is no key $key"
  done < <(if [ "$page" = docs/coming-from.md ]; then awk -F' \\| ' '{ print $NF }' "$source/$page"; else cat "$source/$page"; fi |
    grep -oE '`[^`]+`' | grep -oE '\b(model|batch|train|optimizer|schedule|parallel|data|validate|output)\.[a-z_0-9]+' |
    grep -vE '\.(md|h|cpp|toml|json|jsonl|safetensors|model|txt)$' | sort -u)
}

read_help ""
quintet config | awk '/^\[/ { gsub(/[][]/, ""); section = $1 } /^[a-z_0-9]+ =/ { print section "." $1 }' > "$work/keys"
[ "$(wc -l < "$work/keys")" -gt 50 ] || fail "quintet config: read only $(wc -l < "$work/keys") keys"
[ ${#order[@]} -gt 20 ] || fail "quintet --help: found only ${#order[@]} subcommands"

pages=(README.md CONTRIBUTING.md)
for file in "$source"/docs/*.md; do pages+=("docs/${file##*/}"); done
pages+=(help)
[ $# = 0 ] || pages=("$@")
for each in "${pages[@]}"; do
  if [ "$each" = help ]; then
    help_examples
    continue
  fi
  inline_commands "$each"
  keys "$each"
  page "$each"
done
echo "$ran commands ran, $not_run are marked as not to be run, $failures failures"
[ "$ran" -gt 0 ] && [ "$failures" = 0 ]
