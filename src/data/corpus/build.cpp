#include "data/corpus/build.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/count_bytes.h"
#include "base/json.h"
#include "data/corpus/block_pipeline.h"
#include "data/corpus/build_state.h"
#include "data/corpus/corpus_frame.h"
#include "data/corpus/corpus_writer.h"
#include "data/corpus/duplicates.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"

namespace quintet {
namespace {

// Files that are read side by side, each with a decompressor's window of up to 128 MiB.
constexpr std::size_t kLanes = 4;
constexpr std::size_t kCacheBytes = 128 << 20;  // of all threads' encoders together
// A block larger than this holds a very long document; such are worked on one at a time.
constexpr std::size_t kLargeBlock = 2 << 20;
constexpr std::size_t kBadLinesKept = 5;
// Models that the library encodes take some 340 bytes of memory for every byte of a document.
constexpr std::size_t kMaxLibraryDocument = 1 << 20;
constexpr const char* kLockFile = "build.lock";
constexpr const char* kDuplicatesFolder = "duplicates";

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Keeps a second build out of the folder.
class FolderLock {
 public:
  static Result<FolderLock> take(const Path& folder) {
    const Path path = folder / kLockFile;
    FolderLock lock;
    lock.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock.descriptor_ < 0) {
      return io_error("{}: cannot create: {}", path.string(), std::strerror(errno));
    }
    // Whoever held it before removes the file at its end: then this is the lock of nothing.
    struct stat held {
    }, there{};
    if (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) != 0 ||
        ::fstat(lock.descriptor_, &held) != 0 || ::stat(path.c_str(), &there) != 0 ||
        held.st_ino != there.st_ino) {
      return usage_error("{}: another build is writing into this folder", folder.string());
    }
    return lock;
  }
  FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  FolderLock() = default;
  int descriptor_ = -1;
};

// What a block becomes.
struct BlockTokens {
  struct Mark {
    std::size_t end = 0;  // of its tokens
    std::uint16_t language = 0;
    Split split = Split::kTrain;
    CorpusCounts counts;
  };
  Buffer<std::int32_t> tokens;
  std::vector<Mark> documents;
  std::vector<std::string> languages;
  BlockNotes notes;
  std::map<std::string, std::int64_t> left_out;

  void clear() {
    // A block usually has about half as many.
    constexpr std::size_t kKeptTokens = std::size_t{1} << 18, kKeptDocuments = 1 << 13;
    tokens.clear();
    tokens.shrink(kKeptTokens);
    documents.clear();
    if (documents.capacity() > kKeptDocuments) documents = {};
    languages.clear();
    notes.clear();
    left_out.clear();
  }
};
struct BlockFingerprints {
  std::vector<Fingerprint> documents;

  void clear() { documents = {}; }
};

double processor_now() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Builder {
 public:
  Builder(const BuildOptions& options, const BuildEnvironment& environment, std::string model,
          Tokenizer tokenizer, FoundInputs inputs)
      : options_(options),
        environment_(environment),
        model_(std::move(model)),
        tokenizer_(std::move(tokenizer)),
        inputs_(std::move(inputs.files)),
        not_taken_(std::move(inputs.not_taken)),
        threads_(options.threads > 0
                     ? options.threads
                     : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {
    for (const InputFile& file : inputs_) total_bytes_ += file.bytes;
  }

  Result<BuildReport> run();

 private:
  // A thread's own tools.
  struct Worker {
    Encoder encoder;
    DocumentReader reader;
  };

  void plan();
  const InputFile* find_once() const;
  Result<bool> begin();
  Status find_fingerprints();
  Status write_tokens();
  Result<std::vector<TextBlocks>> open_lanes();
  Status clean_up();
  Status interrupted() const;
  // Runs a pipeline until its input is used up; told to stop, saves how far it came.
  template <class Pipeline, class Process, class Commit>
  Status run_to_end(Pipeline& pipeline, const Process& process, const Commit& commit) {
    const std::atomic<bool> never = false;
    QT_TRY(
        pipeline.run(process, commit, environment_.stop != nullptr ? *environment_.stop : never));
    if (pipeline.finished()) return {};
    QT_TRY(checkpoint_if_due(state_.position, true));
    return interrupted();
  }

  Status tokenize(Worker& worker, std::uint64_t ticket, const TextBlock& block, BlockTokens& out);
  Status commit(BlockTokens& tokens, const TextBlock& block);
  Status checkpoint_if_due(const PipelinePosition& position, bool now_please);
  void count_progress(const TextBlock& block, std::size_t text_bytes, std::size_t tokens);
  bool stopped() const { return environment_.stop != nullptr && *environment_.stop; }
  DocumentReader make_reader() const;

  const BuildOptions& options_;
  const BuildEnvironment& environment_;
  std::string model_;  // the bytes of the tokenizer
  Tokenizer tokenizer_;
  std::vector<InputFile> inputs_;
  std::vector<NotTaken> not_taken_;
  int threads_;
  std::uint64_t total_bytes_ = 0;

  Manifest manifest_;  // what is known of it from the start
  BuildState state_;
  std::optional<CorpusWriter> writer_;
  std::vector<std::uint32_t> lengths_;  // working memory of commit()
  std::optional<DuplicateFinder> finder_;
  DuplicateList duplicates_;
  std::mutex duplicates_mutex_, large_mutex_;
  BuildProgress progress_;
  double phase_began_ = 0, checkpointed_ = 0;
};

// Everything that the corpus's bytes follow from, as a digest.
void Builder::plan() {
  describe_vocabulary(tokenizer_, options_.sentinels, manifest_);
  const auto number = [](auto value) { return fmt::format("{}", value); };
  static constexpr const char* kRules[] = {"", "directory", "file:", "field:"};
  manifest_.options = {
      {"language", kRules[static_cast<int>(options_.languages.kind)] + options_.languages.argument},
      {"text_field", options_.text_field},
      {"documents", options_.paragraphs ? "paragraphs" : "lines"},
      {"normalize", options_.normalize_spaces ? "spaces" : "none"},
      {"min_characters", number(options_.min_characters)},
      {"max_characters", number(options_.max_characters)},
      {"deduplicate", options_.deduplicate ? "yes" : "no"},
      {"held_out", number(options_.held_out)},
      {"sentinels", number(options_.sentinels)},
      {"shard_tokens", number(options_.shard_tokens)}};
  Json everything = {{"version", 1},
                     {"block", kTextBlockBytes},
                     {"lanes", kLanes},
                     {"tokenizer", tokenizer_.digest()},
                     {"options", manifest_.options},
                     {"files", Json::array()}};
  for (const InputFile& file : inputs_) {
    everything["files"].push_back(
        {std::filesystem::absolute(file.path).string(), file.bytes, file.modified, file.row_group});
  }
  std::string text = to_text(everything);
  // Bytes that are no UTF-8 are all the same in JSON, and still tell names apart.
  const auto add_bytes = [&text](const std::string& name) {
    if (!is_valid_utf8(name)) text += '\0' + name;
  };
  for (const auto& option : manifest_.options) add_bytes(option.second);
  for (const InputFile& file : inputs_) {
    add_bytes(std::filesystem::absolute(file.path).string());
  }
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  manifest_.plan_digest = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

// The first input that comes once, or null.
const InputFile* Builder::find_once() const {
  const auto found =
      std::find_if(inputs_.begin(), inputs_.end(), [](const InputFile& file) { return file.once; });
  return found == inputs_.end() ? nullptr : &*found;
}

// Finds out where to begin; true when there is nothing left to do.
Result<bool> Builder::begin() {
  const Path& folder = options_.output;
  const bool complete = std::filesystem::exists(folder / kManifestFile);
  // What comes now may be another text than what came then.
  if (const InputFile* once = find_once();
      once != nullptr && (complete || std::filesystem::exists(folder / kBuildStateFile))) {
    return usage_error(
        "{}: holds {}, and whether {} gives the same text again cannot be known; choose another "
        "folder, or remove this one and begin again",
        folder.string(), complete ? "a corpus" : "an unfinished build", once->name());
  }
  if (complete) {
    QT_ASSIGN(Manifest there, load_manifest(folder));
    if (there.plan_digest == manifest_.plan_digest) {
      manifest_ = std::move(there);
      return true;
    }
    return usage_error(
        "{}: holds a corpus built from other files or with other options; choose another folder "
        "or remove it",
        folder.string());
  }
  QT_ASSIGN(std::optional<BuildState> saved, load_build_state(folder));
  if (saved && saved->plan_digest != manifest_.plan_digest) {
    return usage_error(
        "{}: holds an unfinished build of other files or with other options (a file that changed "
        "since counts as another); finish that one, choose another folder or remove it",
        folder.string());
  }
  if (saved) {
    state_ = std::move(*saved);
    const bool counts = state_.phase == BuildState::Phase::kFingerprints;
    if (state_.position.lanes.size() != std::min(kLanes, inputs_.size()) ||
        (counts && state_.fingerprints.size() != DuplicateFinder::partitions_for(total_bytes_))) {
      return bad_input("{}: damaged; remove the folder and build again",
                       (folder / kBuildStateFile).string());
    }
    return false;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename() == kLockFile) continue;
    return usage_error("{}: not empty, and not an unfinished build; choose another folder",
                       folder.string());
  }
  state_.plan_digest = manifest_.plan_digest;
  state_.phase =
      options_.deduplicate ? BuildState::Phase::kFingerprints : BuildState::Phase::kTokens;
  state_.position.lanes.resize(std::min(kLanes, inputs_.size()));
  if (options_.deduplicate) {
    state_.fingerprints.assign(DuplicateFinder::partitions_for(total_bytes_), 0);
  }
  return false;
}

Result<std::vector<TextBlocks>> Builder::open_lanes() {
  const std::size_t count = state_.position.lanes.size();
  std::vector<std::vector<std::uint32_t>> indices(count);
  for (std::uint32_t i = 0; i < inputs_.size(); ++i) indices[i % count].push_back(i);
  std::vector<TextBlocks> lanes;
  for (std::size_t i = 0; i < count; ++i) {
    lanes.emplace_back(inputs_, std::move(indices[i]), kTextBlockBytes);
    QT_TRY(lanes.back().seek(state_.position.lanes[i]));
  }
  return lanes;
}

DocumentReader Builder::make_reader() const {
  DocumentOptions options;
  options.text_field = options_.text_field;
  if (options_.languages.kind == LanguageRule::Kind::kField) {
    options.language_field = options_.languages.argument;
  }
  options.normalize_spaces = options_.normalize_spaces;
  if (!tokenizer_.is_native()) options.max_bytes = kMaxLibraryDocument;
  return {inputs_, options};
}

Status Builder::interrupted() const {
  if (const InputFile* once = find_once()) {
    return make_error(ErrorCode::kInterrupted,
                      "interrupted; {} comes once, so this build cannot be continued: remove {} "
                      "and begin again",
                      once->name(), options_.output.string());
  }
  return make_error(ErrorCode::kInterrupted,
                    "interrupted; the same command continues where it was ({})",
                    options_.output.string());
}

Status Builder::find_fingerprints() {
  progress_ = {"finding duplicates", state_.input_bytes, total_bytes_, 0, 0, 0};
  phase_began_ = checkpointed_ = now();
  QT_TRY(make_directories(options_.output / kDuplicatesFolder));
  finder_.emplace(*environment_.files, options_.output / kDuplicatesFolder,
                  state_.fingerprints.size());
  QT_TRY(finder_->resume(state_.fingerprints));
  QT_ASSIGN(std::vector<TextBlocks> lanes, open_lanes());
  std::vector<DocumentReader> readers;
  for (int i = 0; i < threads_; ++i) readers.push_back(make_reader());
  using Pipeline = BlockPipeline<BlockFingerprints>;
  Pipeline pipeline(std::move(lanes), state_.position, threads_);
  const auto process = [&](int thread, Pipeline::Item& item) -> Status {
    // Bad lines are counted when they are met again.
    BlockNotes notes;
    return readers[static_cast<std::size_t>(thread)].read(
        item.block, notes, [&](const Document& document) -> Status {
          item.output.documents.push_back(fingerprint_of(document.text));
          return {};
        });
  };
  const auto commit = [&](Pipeline::Item& item, const PipelinePosition& position) -> Status {
    for (std::uint32_t i = 0; i < item.output.documents.size(); ++i) {
      QT_TRY(finder_->add(item.output.documents[i], {item.ticket, i}));
    }
    std::size_t bytes = 0;
    for (const TextBlock::Part& part : item.block.parts) bytes += part.end - part.begin;
    count_progress(item.block, bytes, 0);
    state_.position = position;
    return checkpoint_if_due(position, false);
  };
  QT_TRY(run_to_end(pipeline, process, commit));
  QT_TRY(finder_->find());
  state_.phase = BuildState::Phase::kTokens;
  state_.position = {0, std::vector<TextPosition>(state_.position.lanes.size())};
  state_.input_bytes = 0;
  return save_build_state(*environment_.files, options_.output, state_);
}

Status Builder::write_tokens() {
  progress_ = {"tokenizing", state_.input_bytes, total_bytes_, 0, 0, 0};
  phase_began_ = checkpointed_ = now();
  if (options_.deduplicate) duplicates_ = DuplicateList(options_.output / kDuplicatesFolder);
  writer_.emplace(*environment_.files, options_.output, manifest_.layout,
                  static_cast<std::uint64_t>(options_.shard_tokens));
  QT_TRY(writer_->resume(state_.corpus));
  QT_ASSIGN(std::vector<TextBlocks> lanes, open_lanes());
  const std::size_t entries = std::clamp(
      std::bit_floor(kCacheBytes / sizeof(WordCache::Entry) / static_cast<std::size_t>(threads_)),
      std::size_t{1} << 12, UnigramEncoder::kDefaultCacheEntries);
  std::vector<Worker> workers;
  for (int i = 0; i < threads_; ++i) {
    workers.push_back({Encoder(tokenizer_, entries), make_reader()});
  }
  using Pipeline = BlockPipeline<BlockTokens>;
  Pipeline pipeline(std::move(lanes), state_.position, threads_);
  const auto process = [&](int thread, Pipeline::Item& item) -> Status {
    Worker& worker = workers[static_cast<std::size_t>(thread)];
    if (item.block.text.size() <= kLargeBlock) {
      return tokenize(worker, item.ticket, item.block, item.output);
    }
    const std::lock_guard one_at_a_time(large_mutex_);
    Status status = tokenize(worker, item.ticket, item.block, item.output);
    worker.encoder.trim_memory();
    worker.reader.trim_memory();
    return status;
  };
  const auto commit = [&](Pipeline::Item& item, const PipelinePosition& position) -> Status {
    QT_TRY(this->commit(item.output, item.block));
    state_.position = position;
    return checkpoint_if_due(position, false);
  };
  return run_to_end(pipeline, process, commit);
}

Status Builder::tokenize(Worker& worker, std::uint64_t ticket, const TextBlock& block,
                         BlockTokens& out) {
  std::vector<std::uint32_t> duplicates;
  if (options_.deduplicate) {
    const std::lock_guard lock(duplicates_mutex_);
    QT_ASSIGN(duplicates, duplicates_.in_block(ticket));
  }
  const auto held_out_below =
      static_cast<double>(options_.held_out) * 0x1p64;  // of a fingerprint's low half
  std::uint32_t index = 0;
  // A model whose sentinels are pieces like others makes them of texts that spell their names.
  const SpecialTokens& special = manifest_.special;
  const auto is_sentinel = [&](std::int32_t id) {
    return id <= special.first_sentinel && id > special.first_sentinel - special.sentinels;
  };
  QT_TRY(worker.reader.read(block, out.notes, [&](const Document& document) -> Status {
    if (std::binary_search(duplicates.begin(), duplicates.end(), index++)) {
      ++out.left_out["duplicate"];
      return {};
    }
    const auto characters = static_cast<std::int64_t>(count_bytes(
        document.text, [](char c) { return (static_cast<std::uint8_t>(c) & 0xC0) != 0x80; }));
    if (characters < options_.min_characters || characters > options_.max_characters) {
      ++out.left_out[characters < options_.min_characters ? "too short" : "too long"];
      return {};
    }
    const std::size_t begin = out.tokens.size();
    const std::int64_t unknown = worker.encoder.unknown_characters();
    QT_TRY(worker.encoder.encode(document.text, out.tokens));
    if (out.tokens.size() == begin) {
      ++out.left_out["without tokens"];
      return {};
    }
    const auto ids = out.tokens.span().subspan(begin);
    if (std::any_of(ids.begin(), ids.end(), is_sentinel)) {
      out.tokens.set_size(begin);
      ++out.left_out["spells a sentinel"];
      return {};
    }
    if (out.tokens.size() - begin > static_cast<std::size_t>(options_.shard_tokens)) {
      return usage_error("{}:{}: a document of {} tokens does not fit into shards of {} tokens",
                         inputs_[document.file].name(), document.line, out.tokens.size() - begin,
                         options_.shard_tokens);
    }
    BlockTokens::Mark mark;
    mark.end = out.tokens.size();
    mark.counts = {1, static_cast<std::int64_t>(document.text.size()), characters,
                   static_cast<std::int64_t>(mark.end - begin),
                   worker.encoder.unknown_characters() - unknown};
    // Equal documents fall on the same side.
    if (options_.held_out > 0 &&
        static_cast<double>(fingerprint_of(document.text).low) < held_out_below) {
      mark.split = Split::kHeldOut;
    }
    auto name = std::find(out.languages.begin(), out.languages.end(), document.language);
    if (name == out.languages.end()) {
      name = out.languages.insert(name, std::string(document.language));
    }
    mark.language = static_cast<std::uint16_t>(name - out.languages.begin());
    out.documents.push_back(mark);
    return {};
  }));
  return {};
}

Status Builder::commit(BlockTokens& out, const TextBlock& block) {
  const auto named = [&](const BadLine& line) {
    return fmt::format("{}:{}: {}", inputs_[line.file].name(), line.line, line.reason);
  };
  for (const BadLine& line : out.notes.too_long) {
    // Some of both kinds are named, whichever comes first.
    if (state_.left_out["too long"]++ < static_cast<std::int64_t>(kBadLinesKept)) {
      state_.first_bad_lines.push_back(named(line));
    }
  }
  for (const auto& [reason, count] : out.notes.left_out) state_.left_out[reason] += count;
  for (const BadLine& line : out.notes.bad) {
    const std::string text = named(line);
    if (state_.bad_lines == options_.bad_lines) {
      return bad_input("{}{}", text,
                       options_.bad_lines == 0
                           ? "; --max-bad-lines lets some pass"
                           : fmt::format("; {} bad lines before it were passed over, which is all "
                                         "that --max-bad-lines allows",
                                         options_.bad_lines));
    }
    ++state_.bad_lines;
    if (state_.bad_lines <= static_cast<std::int64_t>(kBadLinesKept)) {
      state_.first_bad_lines.push_back(text);
    }
  }
  for (const auto& [reason, count] : out.left_out) state_.left_out[reason] += count;
  // Neighbours that go to the same place go there together.
  std::size_t begin = 0, bytes = 0;
  CorpusCounts counts;
  for (std::size_t i = 0; i < out.documents.size(); ++i) {
    const BlockTokens::Mark& mark = out.documents[i];
    counts.add(mark.counts);
    lengths_.push_back(static_cast<std::uint32_t>(mark.counts.tokens));
    if (i + 1 < out.documents.size() && out.documents[i + 1].language == mark.language &&
        out.documents[i + 1].split == mark.split) {
      continue;
    }
    QT_TRY(writer_->add(mark.split, out.languages[mark.language],
                        out.tokens.span().subspan(begin, mark.end - begin), lengths_, counts));
    begin = mark.end;
    bytes += static_cast<std::size_t>(counts.bytes);
    counts = {};
    lengths_.clear();
  }
  state_.tokens_written += out.tokens.size();
  count_progress(block, bytes, out.tokens.size());
  return {};
}

void Builder::count_progress(const TextBlock& block, std::size_t text_bytes, std::size_t tokens) {
  state_.input_bytes += block.file_bytes;
  progress_.input_bytes = state_.input_bytes;
  progress_.text_bytes += text_bytes;
  progress_.tokens += tokens;
  progress_.seconds = now() - phase_began_;
  if (environment_.progress) environment_.progress(progress_);
}

Status Builder::checkpoint_if_due(const PipelinePosition& position, bool now_please) {
  if (!now_please && now() - checkpointed_ < environment_.checkpoint_seconds) return {};
  state_.position = position;
  if (state_.phase == BuildState::Phase::kFingerprints) {
    QT_ASSIGN(state_.fingerprints, finder_->flush());
  } else {
    QT_ASSIGN(state_.corpus, writer_->flush());
  }
  QT_TRY(save_build_state(*environment_.files, options_.output, state_));
  checkpointed_ = now();
  return {};
}

// Removes what only an unfinished build needs.
Status Builder::clean_up() {
  FileStore& files = *environment_.files;
  CorpusWriter writer(files, options_.output, manifest_.layout, 0);
  QT_TRY(writer.resume({{}, manifest_.shards}));
  QT_TRY(DuplicateFinder(files, options_.output / kDuplicatesFolder, 1).clean());
  QT_TRY(files.remove(options_.output / kBuildStateFile));
  return files.remove(options_.output / kLockFile);
}

Result<BuildReport> Builder::run() {
  const double began = now(), processor_began = processor_now();
  plan();
  QT_TRY(make_directories(options_.output));
  QT_ASSIGN(const FolderLock lock, FolderLock::take(options_.output));
  BuildReport report;
  FileStore& files = *environment_.files;
  if (const Result<bool> begun = begin(); begun.ok()) {
    report.already_complete = begun.value();
  } else {
    QT_TRY(files.remove(options_.output / kLockFile));  // somebody else's corpus stays as it was
    return begun.error();
  }
  if (report.already_complete) {
    QT_TRY(clean_up());
    report.manifest = std::move(manifest_);
    return report;
  }
  QT_TRY(save_build_state(files, options_.output, state_));
  if (state_.phase == BuildState::Phase::kFingerprints) QT_TRY(find_fingerprints());
  QT_TRY(write_tokens());

  std::erase_if(state_.left_out, [](const auto& reason) { return reason.second == 0; });
  manifest_.left_out = state_.left_out;
  if (state_.bad_lines > 0) manifest_.left_out["bad line"] = state_.bad_lines;
  for (const NotTaken& file : not_taken_) {
    ++manifest_.not_taken[file.reason.starts_with("the same file as ") ? "the same file again"
                                                                       : file.reason];
  }
  if (state_.tokens_written == 0) {
    std::string reasons;
    for (const auto& [reason, count] : manifest_.left_out) {
      reasons += fmt::format("{}{} ({})", reasons.empty() ? "" : ", ", count, reason);
    }
    QT_TRY(clean_up());  // the folder is free for another attempt
    return bad_input(
        "no document came out of {} files{}{}; nothing was built, and {} holds no corpus",
        inputs_.size(), reasons.empty() ? ": they are empty" : ": left out were ", reasons,
        options_.output.string());
  }
  QT_TRY(finish_corpus(files, options_.output, model_, *writer_, manifest_));
  QT_TRY(clean_up());
  report.manifest = std::move(manifest_);
  report.not_taken = std::move(not_taken_);
  report.bad_lines = state_.bad_lines;
  report.first_bad_lines = state_.first_bad_lines;
  report.seconds = now() - began;
  report.processor_seconds = processor_now() - processor_began;
  return report;
}

Status check(const BuildOptions& options) {
  if (!(options.held_out >= 0 && options.held_out < 1)) {
    return usage_error("--held-out {}: expected a share of at least 0 and below 1",
                       options.held_out);
  }
  if (options.min_characters > options.max_characters) {
    return usage_error("--min-characters {} is more than --max-characters {}",
                       options.min_characters, options.max_characters);
  }
  if (options.shard_tokens < 1 ||
      options.shard_tokens > static_cast<std::int64_t>(ShardWriter::kMaxTokens)) {
    return usage_error("--shard-tokens {}: expected 1 to {}", options.shard_tokens,
                       ShardWriter::kMaxTokens);
  }
  return {};
}

}  // namespace

Result<BuildReport> build_corpus(const BuildOptions& options, const BuildEnvironment& environment) {
  QT_TRY(check(options));
  QT_ASSIGN(std::string model, read_file(options.tokenizer));
  QT_ASSIGN(Tokenizer tokenizer, Tokenizer::create(model, options.tokenizer.string()));
  QT_ASSIGN(FoundInputs inputs,
            find_inputs({options.inputs, options.languages, options.text_field, options.paragraphs,
                         options.stdin_format, options.output}));
  for (const InputFile& file : inputs.files) {
    if (!options.deduplicate || !file.once) continue;
    return usage_error("--deduplicate reads the input twice, and {} comes once", file.name());
  }
  Builder builder(options, environment, std::move(model), std::move(tokenizer), std::move(inputs));
  return builder.run();
}

}  // namespace quintet
