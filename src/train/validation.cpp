#include "train/validation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/check.h"
#include "base/clock.h"
#include "base/index.h"
#include "base/mapped_fault.h"
#include "data/loader/prefetch.h"
#include "train/feed.h"
#include "train/run_signals.h"

namespace quintet {
namespace {

constexpr int kLoaderThreads = 2, kLoaderAhead = 4;

Json json_of(const LossSum& sum) {
  Json json = {{"loss", sum.mean()}, {"tokens", sum.tokens}, {"sequences", sum.sequences}};
  if (const auto bits = sum.bits_per_byte()) json["bits_per_byte"] = *bits;
  return json;
}

// Sums over all ranks, in the order of the ranks, everywhere.
std::vector<LossSum> over_all_ranks(const std::vector<LossSum>& mine, World& world) {
  static_assert(std::is_trivially_copyable_v<LossSum>);
  const auto text_of = [](const std::vector<LossSum>& sums) {
    return std::string(reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(LossSum));
  };
  std::vector<LossSum> all(mine.size());
  for (const std::string& text : world.gather(text_of(mine))) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      LossSum sum;
      std::memcpy(&sum, text.data() + i * sizeof sum, sizeof sum);
      all[i].add(sum);
    }
  }
  const std::string text = world.broadcast(text_of(all));
  std::memcpy(all.data(), text.data(), text.size());
  return all;
}

}  // namespace

void LossSum::add(const LossSum& other) {
  loss += other.loss;
  tokens += other.tokens;
  sequences += other.sequences;
  bytes += other.bytes;
}

std::optional<double> LossSum::bits_per_byte() const {
  if (bytes == 0) return std::nullopt;
  return loss / std::numbers::ln2 / static_cast<double>(bytes);
}

Json ValidationResult::to_json() const {
  Json json = json_of(total);
  json["seconds"] = seconds;
  json["languages"] = Json::object();
  for (const Language& language : languages)
    json["languages"][language.name] = json_of(language.sum);
  return json;
}

Result<Validation> Validation::create(const RunConfig& config, const StepOptions& options,
                                      std::int64_t sequences, std::int32_t rank,
                                      const Program* step) {
  Validation validation;
  QT_ASSIGN(validation.data_, open_validation_data(config, options));
  validation.options_ = validation_options(options, validation.data_.padded);
  validation.sequences_ = std::min(sequences, validation.data_.most);
  validation.program_ =
      std::make_unique<Program>(step == nullptr ? compile_step(validation.options_, rank)
                                                : compile_beside(validation.options_, *step));
  return validation;
}

Status Validation::make_ready(Executor* step, World& world) {
  QT_ASSIGN(executor_, step == nullptr ? make_executor(*program_, world)
                                       : make_executor_beside(*step, *program_, world));
  return {};
}

// Adds what this rank answers for: of several ranks with the same token losses, the first.
Status Validation::sum_up(const std::vector<Batch>& batches, std::int64_t run,
                          std::vector<LossSum>& sums) {
  QT_TRY(executor_->wait());
  const TensorId tensor = program_->io.token_losses;
  if (tensor == kNone || program_->place.tp != 0) return {};
  const std::vector<float> losses = executor_->read_all<float>(tensor);
  std::size_t at = 0;
  for (std::size_t m = 0; m < batches.size(); ++m) {
    const Batch& batch = batches[m];
    const std::int64_t first =
        options_.batches().first_sample(run, static_cast<std::int64_t>(m), program_->place.dp);
    for (std::int64_t row = 0; row < batch.sequences; ++row) {
      const std::int64_t sample = first + row;
      LossSum sum;
      sum.sequences = sample < sequences_ ? 1 : 0;
      for (std::int64_t i = 0; i < batch.target_length; ++i, ++at) {
        const std::int32_t label = batch.labels[index(row * batch.target_length + i)];
        if (label < 0) continue;
        sum.loss += static_cast<double>(losses[at]);
        ++sum.tokens;
        if (index(label) < data_.text_bytes.size()) sum.bytes += data_.text_bytes[index(label)];
      }
      if (sample < sequences_) sums[data_.source->group_of(data_.first + sample)].add(sum);
    }
  }
  return {};
}

Result<ValidationResult> Validation::run(World& world) {
  const double began = now();
  const BatchPlan plan = options_.batches();
  const BatchShape& shape = options_.batch;
  const std::vector<std::string> names = data_.source->group_names();
  std::vector<LossSum> sums(names.size());
  Prefetcher prefetcher(
      *data_.source,
      [plan, dp = program_->place.dp, first = data_.first](std::int64_t n) {
        return first + plan.first_sample_of(n, dp);
      },
      {shape.micro_batch, shape.source, shape.target, kLoaderThreads, kLoaderAhead});
  // The last batches may be filled up with sequences that do not count.
  std::vector<Batch> batches(index(options_.accumulate));
  const std::int64_t runs = (sequences_ + plan.global_batch() - 1) / plan.global_batch();
  for (std::int64_t run = 0; run < runs; ++run) {
    if (agree_on_stop(world)) {
      return make_error(ErrorCode::kInterrupted,
                        "stopped after {} of {} sequences of the validation, which has no result",
                        run * plan.global_batch(), sequences_);
    }
    for (std::int32_t m = 0; m < options_.accumulate; ++m) {
      auto made = prefetcher.next();
      QT_TRY(mapped_files_are_whole());  // else it was made from zeros
      QT_ASSIGN(const Batch* batch, std::move(made));
      batches[index(m)] = *batch;
      const std::int64_t counted = std::clamp<std::int64_t>(
          sequences_ - plan.first_sample(run, m, program_->place.dp), 0, shape.micro_batch);
      auto& labels = batches[index(m)].labels;
      std::fill(labels.begin() + counted * shape.target, labels.end(), -1);
      QT_TRY(feed(*executor_, m, batches[index(m)], options_));
    }
    QT_TRY(start_step(*executor_, 1, 0));
    QT_TRY(sum_up(batches, run, sums));
  }
  sums = over_all_ranks(sums, world);
  ValidationResult result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (sums[i].sequences == 0) continue;
    result.total.add(sums[i]);
    result.languages.push_back({names[i], sums[i]});
  }
  result.seconds = now() - began;
  if (result.total.tokens == 0)
    return bad_input("validation: {} sequences without a label that counts", sequences_);
  return result;
}

}  // namespace quintet
