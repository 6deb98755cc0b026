// A checkpoint as a folder that Hugging Face's transformers, and `model.weights`, load: weights in
// one file or in shards with an index, configuration, tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file_store.h"
#include "base/result.h"

namespace quintet {

struct ExportOptions {
  Path checkpoint;             // of a step, or a run: its newest that is whole
  Path output;                 // must not exist
  std::string dtype = "fp32";  // or bf16, fp16
  std::int64_t shard_bytes = 5'000'000'000;
  Path tokenizer = {};  // file, or folder with one; empty: that of the run's data
  bool ema = false;     // the running mean of the weights (optimizer.ema) instead of the weights
};

struct ExportReport {
  Path checkpoint;
  std::int64_t step = 0, parameters = 0, bytes = 0;  // bytes: of all files
  std::vector<std::string> weight_files;
  std::optional<Path> tokenizer;  // none: `why_no_tokenizer`
  std::string why_no_tokenizer;
};

// Holds one block of one weight at a time. The folder appears whole or not at all: it is written
// under another name beside it. Everything is written through `files`. `progress` hears how many
// bytes of weights were written, of how many.
Result<ExportReport> export_model(
    const ExportOptions& options, FileStore& files = local_files(),
    const std::function<void(std::int64_t, std::int64_t)>& progress = {});

// "5GB", "500 MB", "1GiB", "123456": bytes.
Result<std::int64_t> parse_size(const std::string& text);

}  // namespace quintet
