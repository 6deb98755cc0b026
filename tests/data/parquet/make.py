"""Writes the files beside it, with pyarrow (any recent version). Their rows are in expected.jsonl:
what every file's text and lang columns hold, row by row. The C++ tests read both."""
import json
import pathlib
import random

import pyarrow as pa
import pyarrow.parquet as pq

here = pathlib.Path(__file__).parent
rng = random.Random(1)
words = "ein kleines Wort für alle 中文 текст naïve \"quoted\" back\\slash tab\there 😀".split(" ")


def document(i):
    if i % 17 == 3:
        return None
    if i % 13 == 5:
        return ""
    if i % 29 == 7:
        return "line one\nline two\r\n" + "x" * 300
    return " ".join(rng.choice(words) for _ in range(rng.randrange(1, 12)))


rows = [{"text": document(i), "lang": rng.choice(["de", "en", "zh"])} for i in range(150)]
# Runs of equal values, as dictionaries and run lengths like them.
rows += [{"text": "the same text", "lang": "en"} for _ in range(60)]
(here / "expected.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))

table = pa.table({
    "id": pa.array(range(len(rows)), pa.int64()),
    "text": pa.array([r["text"] for r in rows], pa.string()),
    "score": pa.array([i / 7 for i in range(len(rows))], pa.float64()),
    "lang": pa.array([r["lang"] for r in rows], pa.string()),
})


def write(name, table=table, **options):
    options.setdefault("row_group_size", 64)
    pq.write_table(table, here / f"{name}.parquet", **options)


for codec in ["none", "snappy", "gzip", "zstd", "lz4"]:
    write(codec, compression=codec)
write("v2", data_page_version="2.0", compression="snappy")
write("v2_none", data_page_version="2.0", compression="none", use_dictionary=False)
write("plain", use_dictionary=False, compression="snappy", data_page_size=512)
for name, encoding in [("delta_length", "DELTA_LENGTH_BYTE_ARRAY"), ("delta", "DELTA_BYTE_ARRAY")]:
    write(name, use_dictionary=False, compression="zstd",
          column_encoding={"text": encoding, "lang": encoding})
    write(name + "_v2", use_dictionary=False, compression="zstd", data_page_version="2.0",
          column_encoding={"text": encoding, "lang": encoding}, data_page_size=1024)
# A dictionary that becomes too large is given up in the middle of a column.
write("fallback", dictionary_pagesize_limit=512, data_page_size=512, compression="snappy")
write("large_strings", table.set_column(1, "text", table["text"].cast(pa.large_string())))
write("one_group", row_group_size=10000)

nested = pa.table({
    "meta": pa.array([{"lang": r["lang"], "n": i} for i, r in enumerate(rows)],
                     pa.struct([("lang", pa.string()), ("n", pa.int32())])),
    "body": pa.array([{"inner": {"text": r["text"]}} if i % 2 or r["text"] is not None else None
                      for i, r in enumerate(rows)],
                     pa.struct([("inner", pa.struct([("text", pa.string())]))])),
})
write("nested", nested)
# Lists: joined with line breaks; an empty list, and nothing but nulls, are no text.
parts = [None if r["text"] is None else r["text"].split(" ") for r in rows]
lists = pa.table({
    "turns": pa.array([p if i % 7 else [] for i, p in enumerate(parts)], pa.list_(pa.string())),
    "lang": pa.array([r["lang"] for r in rows], pa.string()),
})
write("lists", lists, data_page_size=256)
write("lists_v2", lists, data_page_size=256, data_page_version="2.0")
