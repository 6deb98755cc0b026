#include <chrono>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "data/corpus/corpus.h"
#include "data/corpus/corpus_frame.h"
#include "data/tokenizer/tokenizer.h"

namespace quintet {
namespace {

struct VerifyCorpusOptions {
  Path folder;
  int threads = 0;
};

// The model beside the shards is the one that made them.
Status verify_tokenizer(const Path& folder, const Manifest& manifest) {
  const Path path = folder / kTokenizerFile;
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::open(path));
  if (tokenizer.digest() != manifest.layout.tokenizer_digest) {
    return bad_input("{}: digest {}; the corpus was made with the tokenizer {}", path.string(),
                     tokenizer.digest(), manifest.layout.tokenizer_digest);
  }
  Manifest expected;
  describe_vocabulary(tokenizer, manifest.special.sentinels, expected);
  if (expected.special == manifest.special && expected.layout == manifest.layout) return {};
  const auto ids = [](const Manifest& m) {
    return fmt::format(
        "{} ids of {} bytes, padding {}, end {}, unknown {}, {} sentinels from {} down",
        m.layout.vocabulary, m.layout.token_bytes, m.special.pad, m.special.eos, m.special.unknown,
        m.special.sentinels, m.special.first_sentinel);
  };
  return bad_input("{}: says {}; the tokenizer has {}", (folder / kManifestFile).string(),
                   ids(manifest), ids(expected));
}

// The manifest's counts by language are its shards' sums.
Status verify_counts(const Path& folder, const Manifest& manifest) {
  std::map<std::pair<std::string, Split>, std::pair<std::int64_t, std::int64_t>> sums;
  for (const ShardEntry& entry : manifest.shards) {
    auto& [tokens, documents] = sums[{entry.language, entry.split}];
    tokens += static_cast<std::int64_t>(entry.tokens);
    documents += static_cast<std::int64_t>(entry.documents);
  }
  for (const auto& [language, splits] : manifest.languages) {
    for (const auto& [split, counts] : splits) {
      const auto [tokens, documents] = sums[{language, split}];
      if (counts.tokens == tokens && counts.documents == documents) continue;
      return bad_input("{}: says {} tokens in {} documents of {} ({}); its shards have {} in {}",
                       (folder / kManifestFile).string(), counts.tokens, counts.documents, language,
                       name_of(split), tokens, documents);
    }
  }
  return {};
}

Status run(const VerifyCorpusOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  QT_ASSIGN(const Manifest manifest, load_manifest(options.folder));
  std::mutex mutex;  // of what follows
  std::size_t next = 0, damaged = 0;
  std::uint64_t bytes = 0;
  const auto note = [&](const Status& status) {
    if (status.ok()) return;
    ++damaged;
    log_warning("{}", status.error().message);
  };
  note(verify_tokenizer(options.folder, manifest));
  note(verify_counts(options.folder, manifest));
  const auto work = [&] {
    for (std::unique_lock lock(mutex); next < manifest.shards.size();) {
      const ShardEntry& entry = manifest.shards[next++];
      lock.unlock();
      const auto verified = [&]() -> Status {
        QT_ASSIGN(const TokenShard shard, open_shard(options.folder, manifest.layout, entry));
        return shard.verify();
      }();
      lock.lock();
      note(verified);
      bytes += entry.tokens * manifest.layout.token_bytes;
    }
  };
  {
    const unsigned threads = options.threads > 0
                                 ? static_cast<unsigned>(options.threads)
                                 : std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::jthread> pool;
    for (unsigned i = 1; i < threads; ++i) pool.emplace_back(work);
    work();
  }
  if (damaged > 0) {
    return bad_input("{}: {} of its parts are damaged or missing; build it again",
                     options.folder.string(), damaged);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  fmt::print(
      "{}: {} shards, {} tokens, every checksum is right ({} in {:.1f} s, {:.0f} MB/s)\n",
      options.folder.string(), manifest.shards.size(),
      with_commas(manifest.total(Split::kTrain).tokens + manifest.total(Split::kHeldOut).tokens),
      human_bytes(static_cast<double>(bytes)), seconds,
      static_cast<double>(bytes) * 1e-6 / std::max(seconds, 1e-9));
  return {};
}

}  // namespace

void add_data_verify(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand(
      "verify", "read a whole corpus and check every checksum, every id and every count");
  auto options = std::make_shared<VerifyCorpusOptions>();
  command->add_option("corpus", options->folder, "folder of a corpus")
      ->required()
      ->type_name("DIR");
  command->add_option("--threads", options->threads, "0: one a core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->footer(
      "Names everything that is damaged, and exits with 3 if anything is.\n\n"
      "Example: quintet data verify corpus");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace quintet
