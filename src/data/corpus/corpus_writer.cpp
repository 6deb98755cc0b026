#include "data/corpus/corpus_writer.h"

#include <algorithm>
#include <set>

namespace quintet {

CorpusWriter::CorpusWriter(FileStore& files, Path folder, TokenLayout layout,
                           std::uint64_t shard_tokens)
    : files_(&files),
      folder_(std::move(folder)),
      layout_(std::move(layout)),
      shard_tokens_(shard_tokens) {}

std::string CorpusWriter::shard_name(Split split, const std::string& language,
                                     std::uint64_t number) const {
  return fmt::format("{}/{}-{:05}", name_of(split), language, number);
}

Status CorpusWriter::resume(const CorpusPosition& position) {
  series_.clear();
  finished_ = position.finished;
  for (const auto& [language, splits] : position.series) {
    for (const auto& [split, saved] : splits) {
      Series& series = series_[language][split];
      series.shard = saved.shard;
      series.counts = saved.counts;
      if (saved.position.documents == 0) continue;
      series.writer = std::make_unique<ShardWriter>(
          *files_, folder_ / shard_name(split, language, saved.shard), layout_);
      QT_TRY(series.writer->resume(saved.position));
    }
  }
  return remove_strays();
}

// Files of shards that the position does not know of.
Status CorpusWriter::remove_strays() const {
  std::set<Path> known;
  for (const ShardEntry& shard : finished_) {
    known.insert(tokens_path(folder_ / shard.name));
    known.insert(index_path(folder_ / shard.name));
  }
  for (const auto& [language, splits] : series_) {
    for (const auto& [split, series] : splits) {
      if (series.writer == nullptr) continue;
      const Path name = folder_ / shard_name(split, language, series.shard);
      for (const Path& file : working_files(name)) known.insert(file);
    }
  }
  for (const Split split : kSplits) {
    const Path folder = folder_ / name_of(split);
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!known.contains(entry.path())) QT_TRY(files_->remove(entry.path()));
    }
  }
  return {};
}

Status CorpusWriter::add(Split split, const std::string& language,
                         std::span<const std::int32_t> tokens,
                         std::span<const std::uint32_t> lengths, const CorpusCounts& counts) {
  if (series_.size() == kMaxLanguages && !series_.contains(language)) {
    return bad_input(
        "\"{}\" would be language number {}; at most {} are supported: is this really the field, "
        "folder or name of languages?",
        language, kMaxLanguages + 1, kMaxLanguages);
  }
  Series& series = series_[language][split];
  series.counts.add(counts);
  while (!lengths.empty()) {
    if (series.writer == nullptr) QT_TRY(open_shard(split, language, series));
    // As many as the shard has room for; into an empty one, at least one.
    const ShardPosition& position = series.writer->position();
    const std::uint64_t room = shard_tokens_ - std::min(position.tokens, shard_tokens_);
    std::size_t count = lengths.size(), size = tokens.size();
    if (size > room) {
      for (count = 0, size = 0; size + lengths[count] <= room; ++count) size += lengths[count];
    }
    if (count == 0 && position.documents > 0) {
      QT_TRY(finish_shard(split, language, series));
      continue;
    }
    if (count == 0) size = lengths[count++];
    QT_TRY(series.writer->add(tokens.first(size), lengths.first(count)));
    tokens = tokens.subspan(size);
    lengths = lengths.subspan(count);
  }
  return {};
}

Status CorpusWriter::open_shard(Split split, const std::string& language, Series& series) {
  QT_TRY(make_directories(folder_ / name_of(split)));
  series.writer = std::make_unique<ShardWriter>(
      *files_, folder_ / shard_name(split, language, series.shard), layout_);
  return {};
}

Status CorpusWriter::finish_shard(Split split, const std::string& language, Series& series) {
  const ShardPosition position = series.writer->position();
  QT_TRY(series.writer->finish());
  finished_.push_back({split, language, shard_name(split, language, series.shard), position.tokens,
                       position.documents});
  newly_finished_.push_back(folder_ / shard_name(split, language, series.shard));
  series.writer.reset();
  ++series.shard;
  return {};
}

Result<CorpusPosition> CorpusWriter::flush() {
  // The saved position is the one of the last flush: what was finished before it is final.
  for (const Path& name : final_) {
    for (const Path& file : working_files(name)) QT_TRY(files_->remove(file));
  }
  final_ = std::move(newly_finished_);
  newly_finished_.clear();
  CorpusPosition position;
  position.finished = finished_;
  for (auto& [language, splits] : series_) {
    for (auto& [split, series] : splits) {
      CorpusPosition::Series& saved = position.series[language][split];
      saved = {series.shard, {}, series.counts};
      if (series.writer == nullptr) continue;
      QT_TRY(series.writer->flush());
      saved.position = series.writer->position();
    }
  }
  return position;
}

Result<CorpusPosition> CorpusWriter::finish() {
  for (auto& [language, splits] : series_) {
    for (auto& [split, series] : splits) {
      if (series.writer != nullptr) QT_TRY(finish_shard(split, language, series));
    }
  }
  std::sort(finished_.begin(), finished_.end(), [](const ShardEntry& a, const ShardEntry& b) {
    return std::tie(a.split, a.language, a.name) < std::tie(b.split, b.language, b.name);
  });
  return flush();
}

}  // namespace quintet
