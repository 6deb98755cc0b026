#!/bin/sh
# A toy task for examples/pairs.toml: digits spelled out, from the last to the first.
#
#   sh examples/make_pairs.sh FOLDER [PAIRS]
#
# Writes FOLDER/train.jsonl, a pair per line: {"source": "3 1 4", "target": "four one three"}; and FOLDER/text.txt, the
# same words, for a tokenizer.
set -eu
folder=${1:?usage: make_pairs.sh FOLDER [PAIRS]}
pairs=${2:-5000}
mkdir -p "$folder"
awk -v pairs="$pairs" -v jsonl="$folder/train.jsonl" -v text="$folder/text.txt" 'BEGIN {
  srand(1)
  split("zero one two three four five six seven eight nine", words, " ")
  for (n = 0; n < pairs; ++n) {
    from = to = ""
    for (i = 2 + int(rand() * 3); i > 0; --i) {
      digit = int(rand() * 10)
      from = from (from == "" ? "" : " ") digit
      to = words[digit + 1] (to == "" ? "" : " ") to
    }
    printf "{\"source\": \"%s\", \"target\": \"%s\"}\n", from, to > jsonl
    print from " " to > text
  }
}'
echo "$folder/train.jsonl: $pairs pairs"
