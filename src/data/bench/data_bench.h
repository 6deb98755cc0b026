// Measures the data pipeline stage by stage, the tokenizer against the SentencePiece library on the
// same text, and the loader. What is compared is measured in the same run, in turns, so that
// whatever else the machine does meets both sides.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "data/bench/stopwatch.h"

namespace quintet {

struct DataBenchOptions {
  Path model;                        // empty: a vocabulary counted from generated text
  std::int64_t vocabulary = 250000;  // of that one
  std::int64_t megabytes = 64;       // of each text; the library gets a quarter
  std::vector<Path> texts;           // to be measured besides the generated ones; plain lines
  std::int64_t rounds = 5;
  int threads = 2;
  std::int64_t source = 1024, target = 256;  // of the loader's examples
  Path folder;                               // for temporary files
};

// A text through both tokenizers, one thread.
struct TokenizerRates {
  std::string name;
  std::int64_t bytes = 0, lines = 0, tokens = 0;
  std::int64_t differing = 0;  // lines whose ids are not the library's
  Rounds library, ours;        // over these bytes; ours with an empty cache each time
  double speedup() const { return library.best().cpu / ours.best().cpu; }
};

// A text through several threads, as late in a long run: with caches that know other text.
struct ThreadRates {
  int threads = 0;
  std::int64_t bytes = 0, warm_bytes = 0;  // measured, and read by every encoder beforehand
  Rounds one, all;                         // `all`: cpu is that of the slowest thread
};

struct StageRate {
  std::string name;
  std::int64_t bytes = 0;  // of text, whatever form the stage meets it in
  Rounds rounds;
};

// jsonl.zst to shards, and the tokenizer alone on the same documents.
struct EndToEnd {
  std::string text;
  std::int64_t bytes = 0;
  Rounds tokenizer, one_thread, all_threads;
  Rounds parquet_one, parquet_all;  // the same from a Parquet file
};

struct LoaderRate {
  int threads = 0;
  bool packed = false;
  std::int64_t samples = 0;
  Rounds rounds;
};

struct DataBench {
  std::string model, processor;
  std::int64_t vocabulary = 0;
  std::vector<TokenizerRates> tokenizer;
  ThreadRates scaling;
  std::vector<StageRate> stages;
  std::vector<EndToEnd> end_to_end;
  std::vector<LoaderRate> loader;
  // Opening a corpus of so many shards and tokens.
  std::int64_t shards_opened = 0, tokens_opened = 0;
  double opening_seconds = 0;
};

// `say` is told what is being done.
Result<DataBench> bench_data(const DataBenchOptions& options,
                             const std::function<void(std::string_view)>& say);

// --- Its parts
struct BenchText {
  std::string name, text;  // documents, each with a line break

  std::vector<std::string_view> lines(std::size_t bytes) const;  // the first so many bytes' worth
};
// Generated: one language with spaces; and all languages, document by document.
BenchText single_language_text(std::size_t bytes);
BenchText mixed_text(std::size_t bytes);
// A model file's bytes, with `vocabulary` pieces counted from text of all languages.
Result<std::string> counted_model(std::int64_t vocabulary);

Result<TokenizerRates> bench_tokenizer(const BenchText& text, std::size_t bytes,
                                       const std::string& model, std::int64_t rounds);
Result<ThreadRates> bench_threads(const BenchText& text, const std::string& model, int threads,
                                  std::int64_t rounds);

}  // namespace quintet
