#!/bin/sh
# Text with something to learn, for examples/corpus.toml: which city is the capital of which country.
#
#   sh examples/make_text.sh FOLDER [LINES]
#
# Writes FOLDER/en/capitals.txt, a sentence per line, in a random order that is always the same.
set -eu
folder=${1:?usage: make_text.sh FOLDER [LINES]}
lines=${2:-4000}
mkdir -p "$folder/en"
awk -v lines="$lines" -v out="$folder/en/capitals.txt" 'BEGIN {
  srand(1)
  facts = "Argentina:Buenos Aires,Austria:Vienna,Belgium:Brussels,Brazil:Brasilia,Canada:Ottawa,Chile:Santiago," \
          "China:Beijing,Cuba:Havana,Denmark:Copenhagen,Egypt:Cairo,Finland:Helsinki,France:Paris,Germany:Berlin," \
          "Ghana:Accra,Greece:Athens,Hungary:Budapest,India:New Delhi,Iran:Tehran,Ireland:Dublin,Italy:Rome," \
          "Japan:Tokyo,Kenya:Nairobi,Mexico:Mexico City,Norway:Oslo,Peru:Lima,Poland:Warsaw,Portugal:Lisbon," \
          "Spain:Madrid,Sweden:Stockholm,Vietnam:Hanoi"
  n = split(facts, pairs, ",")
  for (i = 0; i < lines; ++i) {
    split(pairs[1 + int(rand() * n)], fact, ":")
    form = int(rand() * 3)
    if (form == 0) print "The capital of " fact[1] " is " fact[2] "." > out
    if (form == 1) print fact[2] " is the capital of " fact[1] "." > out
    if (form == 2) print "Who goes to " fact[2] " goes to " fact[1] "." > out
  }
}'
echo "$folder/en/capitals.txt: $lines sentences about 30 countries"
