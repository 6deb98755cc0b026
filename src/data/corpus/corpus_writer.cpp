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
                         std::span<const std::int32_t> tokens, const CorpusCounts& counts) {
  if (series_.size() == kMaxLanguages && !series_.contains(language)) {
    return bad_input(
        "\"{}\" would be language number {}; at most {} are supported: is this really the field, "
        "folder or name of languages?",
        language, kMaxLanguages + 1, kMaxLanguages);
  }
  Series& series = series_[language][split];
  if (series.writer != nullptr &&
      series.writer->position().tokens + tokens.size() > shard_tokens_) {
    QT_TRY(finish_shard(split, language, series));
  }
  if (series.writer == nullptr) {
    QT_TRY(make_directories(folder_ / name_of(split)));
    series.writer = std::make_unique<ShardWriter>(
        *files_, folder_ / shard_name(split, language, series.shard), layout_);
  }
  series.counts.add(counts);
  return series.writer->add(tokens);
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
