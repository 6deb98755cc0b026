#include "data/bench/data_bench.h"

#include <fstream>

#include <zstd.h>

#include "base/json.h"
#include "data/bench/parquet_writer.h"
#include "data/corpus/build.h"
#include "data/corpus/corpus_frame.h"
#include "data/loader/corpus_source.h"
#include "data/loader/prefetch.h"

namespace quintet {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  }
  return "unknown processor";
}

// The documents as JSON lines, compressed as such files usually are.
Status write_json_lines(const BenchText& text, const Path& path) {
  std::string json;
  for (const std::string_view line : text.lines(text.text.size())) {
    json += R"({"id": "0123456789abcdef", "text": )" + to_text(line) + "}\n";
  }
  std::string packed(ZSTD_compressBound(json.size()), '\0');
  const std::size_t size = ZSTD_compress(packed.data(), packed.size(), json.data(), json.size(), 3);
  if (ZSTD_isError(size) != 0) return io_error("{}: {}", path.string(), ZSTD_getErrorName(size));
  packed.resize(size);
  return write_file(path, packed);
}

class Bench {
 public:
  Bench(const DataBenchOptions& options, const std::function<void(std::string_view)>& say)
      : options_(options), say_(say) {}

  Result<DataBench> run();

 private:
  Path model_path() const { return options_.folder / "bench.model"; }
  Path json_path(std::size_t i) const {
    return options_.folder / fmt::format("text{}.jsonl.zst", i);
  }
  Path parquet_path(std::size_t i) const {
    return options_.folder / fmt::format("text{}.parquet", i);
  }
  BuildOptions build_options(const Path& input, int threads) const;
  Status tokenizer();
  Status stages();
  Status end_to_end();
  Status loader();
  Status opening();

  const DataBenchOptions& options_;
  const std::function<void(std::string_view)>& say_;
  std::string model_;
  std::vector<BenchText> texts_;
  DataBench bench_;
};

BuildOptions Bench::build_options(const Path& input, int threads) const {
  BuildOptions build;
  build.inputs = {input.string()};
  build.output = options_.folder / "corpus";
  build.tokenizer = model_path();
  build.threads = threads;
  return build;
}

Status Bench::tokenizer() {
  const auto bytes = static_cast<std::size_t>(options_.megabytes) << 20;
  for (const Path& path : options_.texts) {
    QT_ASSIGN(std::string text, read_file(path));
    texts_.push_back({path.filename().string(), std::move(text)});
  }
  for (const BenchText& text : texts_) {
    say_("tokenizer: " + text.name);
    QT_ASSIGN(TokenizerRates rates, bench_tokenizer(text, bytes / 4, model_, options_.rounds));
    bench_.tokenizer.push_back(std::move(rates));
  }
  say_("tokenizer: several threads");
  QT_ASSIGN(bench_.scaling, bench_threads(texts_[0], model_, options_.threads, options_.rounds));
  return {};
}

// Each stage of a build by itself, one thread, over the first text.
Status Bench::stages() {
  const auto bytes = static_cast<std::int64_t>(texts_[0].text.size());
  std::vector<StageRate> stages = {{"read and decompress (.zst)", bytes, {}},
                                   {"parse JSON", bytes, {}},
                                   {"tokenize", bytes, {}},
                                   {"write shards", bytes, {}}};
  InputOptions input;
  input.names = {json_path(0).string()};
  QT_ASSIGN(const FoundInputs found, find_inputs(input));
  const std::vector<InputFile>& files = found.files;
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::open(model_path()));
  Manifest manifest;
  describe_vocabulary(tokenizer, 100, manifest);
  for (std::int64_t round = 0; round < options_.rounds; ++round) {
    std::vector<TextBlock> blocks;
    {
      const Stopwatch watch(Stopwatch::Of::kThread);
      TextBlocks reader(files, {0}, kTextBlockBytes);
      for (;;) {
        TextBlock block;
        QT_TRY(reader.next(block));
        if (block.text.empty()) break;
        blocks.push_back(std::move(block));
      }
      stages[0].rounds.add(watch.elapsed());
    }
    std::vector<std::string> documents;
    {
      DocumentReader reader(files, {});
      BlockNotes notes;
      std::int64_t parsed = 0;
      const Stopwatch watch(Stopwatch::Of::kThread);
      for (const TextBlock& block : blocks) {
        QT_TRY(reader.read(block, notes, [&](const Document& document) -> Status {
          parsed += static_cast<std::int64_t>(document.text.size());
          return {};
        }));
      }
      stages[1].rounds.add(watch.elapsed());
      QT_CHECK(parsed > 0 && notes.bad.empty() && notes.too_long.empty(), "{} bytes parsed",
               parsed);
    }
    blocks.clear();
    const std::vector<std::string_view> lines = texts_[0].lines(texts_[0].text.size());
    Buffer<std::int32_t> ids;
    std::vector<std::size_t> ends;
    {
      const Stopwatch watch(Stopwatch::Of::kThread);
      Encoder encoder(tokenizer);
      for (const std::string_view line : lines) {
        QT_TRY(encoder.encode(line, ids));
        ends.push_back(ids.size());
      }
      stages[2].rounds.add(watch.elapsed());
    }
    const Path folder = options_.folder / "shards";
    QT_TRY(make_directories(folder));
    {
      const Stopwatch watch(Stopwatch::Of::kThread);
      CorpusWriter writer(local_files(), folder, manifest.layout, std::uint64_t{1} << 28);
      std::size_t begin = 0;
      for (const std::size_t end : ends) {
        QT_TRY(writer.add(Split::kTrain, "und", ids.span().subspan(begin, end - begin), {}));
        begin = end;
      }
      QT_ASSIGN(const CorpusPosition position, writer.finish());
      stages[3].rounds.add(watch.elapsed());
      QT_CHECK(position.finished.size() == 1, "{} shards", position.finished.size());
    }
    std::filesystem::remove_all(folder);
  }
  bench_.stages = std::move(stages);
  return {};
}

Status Bench::end_to_end() {
  for (std::size_t i = 0; i < 2; ++i) {
    say_("end to end: " + texts_[i].name);
    EndToEnd result;
    result.text = texts_[i].name;
    result.bytes = static_cast<std::int64_t>(texts_[i].text.size());
    QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::open(model_path()));
    const std::vector<std::string_view> lines = texts_[i].lines(texts_[i].text.size());
    Buffer<std::int32_t> ids;
    for (std::int64_t round = 0; round < options_.rounds; ++round) {
      {
        const Stopwatch watch(Stopwatch::Of::kThread);
        Encoder encoder(tokenizer);
        std::size_t gathered = 0;
        for (const std::string_view line : lines) {
          // The ids of so much text stay together in memory, as in a build.
          if (gathered >= kTextBlockBytes) {
            ids.clear();
            gathered = 0;
          }
          gathered += line.size();
          QT_TRY(encoder.encode(line, ids));
        }
        result.tokenizer.add(watch.elapsed());
      }
      for (const bool parquet : {true, false}) {
        for (const int threads : {1, options_.threads}) {
          std::filesystem::remove_all(options_.folder / "corpus");
          const Path input = parquet ? parquet_path(i) : json_path(i);
          QT_ASSIGN(const BuildReport report, build_corpus(build_options(input, threads), {}));
          (parquet        ? (threads == 1 ? result.parquet_one : result.parquet_all)
           : threads == 1 ? result.one_thread
                          : result.all_threads)
              .add({report.seconds, report.processor_seconds});
        }
      }
    }
    bench_.end_to_end.push_back(std::move(result));
  }
  return {};
}

// From the corpus of many languages that the last stage left, warm from writing it.
Status Bench::loader() {
  say_("loader");
  constexpr std::int64_t kSequences = 32, kBatches = 400;
  for (const auto& [threads, packed] : {std::pair(1, false), std::pair(options_.threads, false),
                                        std::pair(1, true), std::pair(options_.threads, true)}) {
    CorpusConfig config;
    config.folder = (options_.folder / "corpus").string();
    config.pack = packed;
    QT_ASSIGN(CorpusSource source,
              CorpusSource::open(config, options_.source, options_.target, INT32_MAX, 1));
    LoaderRate rate{threads, packed, kSequences * kBatches, {}};
    for (std::int64_t round = 0; round < options_.rounds; ++round) {
      const Stopwatch watch(Stopwatch::Of::kProcess);
      Prefetcher prefetcher(source, [](std::int64_t n) { return n * kSequences; },
                            {kSequences, options_.source, options_.target, threads, 4});
      for (std::int64_t n = 0; n < kBatches; ++n) QT_TRY(prefetcher.next());
      rate.rounds.add(watch.elapsed());
    }
    bench_.loader.push_back(std::move(rate));
  }
  return {};
}

// Opening reads the manifest and no shard, so a manifest is all that a huge corpus takes here.
Status Bench::opening() {
  constexpr std::int64_t kLanguages = 100, kShards = 50, kTokens = std::int64_t{1} << 28;
  QT_ASSIGN(Manifest manifest, load_manifest(options_.folder / "corpus"));
  manifest.languages.clear();
  manifest.shards.clear();
  for (std::int64_t l = 0; l < kLanguages; ++l) {
    const std::string language = fmt::format("l{}", l);
    for (std::int64_t s = 0; s < kShards; ++s) {
      manifest.shards.push_back({Split::kTrain, language,
                                 fmt::format("train/{}-{:05}", language, s),
                                 static_cast<std::uint64_t>(kTokens), 1000});
    }
    manifest.languages[language][Split::kTrain] = {kShards * 1000, 0, 0, kShards * kTokens, 0};
  }
  const Path folder = options_.folder / "huge";
  QT_TRY(make_directories(folder));
  QT_TRY(write_file(folder / kManifestFile, to_json(manifest)));
  CorpusConfig config;
  config.folder = folder.string();
  const Stopwatch watch(Stopwatch::Of::kThread);
  QT_ASSIGN(const CorpusSource source,
            CorpusSource::open(config, options_.source, options_.target, INT32_MAX, 1));
  bench_.opening_seconds = watch.elapsed().wall;
  bench_.shards_opened = kLanguages * kShards;
  bench_.tokens_opened = kLanguages * kShards * kTokens;
  return {};
}

Result<DataBench> Bench::run() {
  bench_.processor = processor_name();
  say_("making a vocabulary and texts");
  if (options_.model.empty()) {
    QT_ASSIGN(model_, counted_model(options_.vocabulary));
    bench_.model = "counted from generated text";
  } else {
    QT_ASSIGN(model_, read_file(options_.model));
    bench_.model = options_.model.string();
  }
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::create(model_, bench_.model));
  bench_.vocabulary = tokenizer.vocabulary().size();
  QT_TRY(write_file(model_path(), model_));
  const auto bytes = static_cast<std::size_t>(options_.megabytes) << 20;
  texts_.push_back(single_language_text(bytes));
  texts_.push_back(mixed_text(bytes));
  for (std::size_t i = 0; i < 2; ++i) {
    QT_TRY(write_json_lines(texts_[i], json_path(i)));
    QT_TRY(write_file(parquet_path(i), parquet_file(texts_[i].lines(texts_[i].text.size()), 1 << 20,
                                                    std::size_t{8} << 20)));
  }
  QT_TRY(this->tokenizer());
  say_("stages");
  QT_TRY(stages());
  QT_TRY(end_to_end());
  QT_TRY(loader());
  QT_TRY(opening());
  return bench_;
}

}  // namespace

Result<DataBench> bench_data(const DataBenchOptions& options,
                             const std::function<void(std::string_view)>& say) {
  return Bench(options, say).run();
}

}  // namespace quintet
