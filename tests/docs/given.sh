# given.sh SOURCE: what the examples in help texts take for granted, files of the reader's, in the current folder.
set -euo pipefail
quietly() { "$@" > /dev/null; }
quietly quintet data generate text --languages en,de,fr --kilobytes 100
quietly quintet tokenizer train --out mt5.model --vocabulary 3000 text
cp mt5.model m.model
cat text/*/text.txt > wiki.txt
head -n 20 wiki.txt > book.txt && gzip book.txt
# A line of text as a record: no quotes or backslashes are in the made-up text.
records() { sed 's/.*/{"text": "&", "lang": "'"$1"'"}/' "text/$1/text.txt"; }
mkdir c4
records de | gzip > c4/c4-de.json.gz
records fr | gzip > c4/c4-fr.json.gz
{ records de; records fr; } > wiki.jsonl
gzip --keep wiki.jsonl
cp wiki.jsonl.gz x.gz
quietly quintet data build --tokenizer mt5.model --out given-corpus --language-by directory text
quietly quintet data export given-corpus --out given-megatron
for language in de fr; do
  for ending in bin idx; do cp "given-megatron/${language}_train.$ending" "${language}_text_document.$ending"; done
done
mkdir data
cp "$1"/tests/data/parquet/{snappy,zstd}.parquet data/
quietly quintet train examples/corpus.toml --set data.folder=given-corpus --set train.steps=3
for stage in 0 3; do
  quietly quintet train --model tiny --set train.steps=3 --set parallel.zero=$stage --set output.folder=runs/zero$stage
done
{
  echo "nodes,zero,bandwidth,day,seconds"
  for day in 1 2 3; do
    for bandwidth in 1 8; do
      printf '%s\n' "4,0,$bandwidth,$day,1.0$day" "4,3,$bandwidth,$day,1.$((30 / bandwidth))$day"
    done
  done
} > runs.csv
