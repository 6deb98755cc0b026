// `quintet data build`: text in, a corpus of token shards out. The bytes that come out follow from
// the options and the input files alone, whatever the number of threads and however often the build
// was interrupted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file_store.h"
#include "base/files.h"
#include "base/result.h"
#include "data/corpus/documents.h"
#include "data/corpus/inputs.h"
#include "data/corpus/manifest.h"

namespace quintet {

struct BuildOptions {
  std::vector<std::string> inputs;  // files, folders, patterns
  Path output;
  Path tokenizer;

  LanguageRule languages;
  std::string text_field = "text";  // of records
  std::string stdin_format = "txt";
  bool paragraphs = false;  // .txt: documents end at empty lines, not at every line
  bool normalize_spaces = false;
  std::int64_t min_characters = 1, max_characters = INT64_MAX;
  bool deduplicate = false;
  double held_out = 0;           // share of the documents
  std::int64_t sentinels = 100;  // added above the model's pieces if it has none of its own
  std::int64_t shard_tokens = std::int64_t{1} << 28;
  std::int64_t bad_lines = 100;  // so many are passed over; one more is an error

  int threads = 0;  // 0: one a core
};

struct BuildProgress {
  const char* phase = "";         // what is being done
  std::uint64_t input_bytes = 0;  // of the files, done in this phase
  std::uint64_t total_bytes = 0;
  std::uint64_t text_bytes = 0;  // decompressed, in this run
  std::uint64_t tokens = 0;      // in this run
  double seconds = 0;            // of this phase, in this run
};

struct BuildReport {
  Manifest manifest;
  std::int64_t bad_lines = 0;
  std::vector<std::string> first_bad_lines;  // a few, for people; and of those that are too long
  std::vector<NotTaken> not_taken;           // files
  bool already_complete = false;             // nothing had to be done
  // What it took, the loading of the tokenizer aside: by the clock, and of all of the process's
  // threads.
  double seconds = 0, processor_seconds = 0;
};

// What a build meets of the world; tests put other things here.
struct BuildEnvironment {
  FileStore* files = &local_files();
  const std::atomic<bool>* stop = nullptr;  // set: save what is done and return kInterrupted
  std::function<void(const BuildProgress&)> progress;
  double checkpoint_seconds = 30;
};

Result<BuildReport> build_corpus(const BuildOptions& options, const BuildEnvironment& environment);

}  // namespace quintet
