#include "train/feed.h"

namespace quintet {
namespace {

// Other pipeline stages may be the ones that need it.
void write_part(Executor& executor, TensorId tensor, std::int32_t index,
                const std::vector<std::int32_t>& values) {
  if (tensor == kNone) return;
  executor.write(tensor, index * static_cast<std::int64_t>(values.size() * sizeof(std::int32_t)),
                 std::as_bytes(std::span(values)));
}

}  // namespace

Status feed(Executor& executor, std::int32_t index, const Batch& batch,
            const StepOptions& options) {
  QT_TRY(check_ids(batch, options.model.vocab_size));
  if (!batch.lengths.empty() && !options.batch.padded && !batch.packed()) {
    return bad_input("a batch with sequences shorter than {} in a run compiled for full ones",
                     batch.source_length);
  }
  if (batch.packed() != options.batch.packed) {
    return bad_input("a {} batch in a run compiled for {} ones",
                     batch.packed() ? "packed" : "plain",
                     options.batch.packed ? "packed" : "plain");
  }
  const StepIo& io = executor.program().io;
  write_part(executor, io.source_segments, index, batch.source_segments);
  write_part(executor, io.target_segments, index, batch.target_segments);
  write_part(executor, io.source_ids, index, batch.source);
  write_part(executor, io.target_ids, index, batch.target);
  write_part(executor, io.labels, index, batch.labels);
  if (io.source_lengths != kNone && batch.lengths.empty()) {
    write_part(executor, io.source_lengths, index,
               std::vector(static_cast<std::size_t>(batch.sequences),
                           static_cast<std::int32_t>(batch.source_length)));
  } else {
    write_part(executor, io.source_lengths, index, batch.lengths);
  }
  return {};
}

Status start_step(Executor& executor, std::int64_t step, double learning_rate,
                  std::array<float, 2> limits) {
  const StepIo& io = executor.program().io;
  executor.write_all<std::int64_t>(io.step, std::span(&step, 1));
  if (io.learning_rate != kNone) {
    const auto rate = static_cast<float>(learning_rate);
    executor.write_all<float>(io.learning_rate, std::span(&rate, 1));
  }
  if (io.limits != kNone) executor.write_all<float>(io.limits, limits);
  return executor.run();
}

Result<StepResult> finish_step(Executor& executor) {
  QT_TRY(executor.wait());
  const StepIo& io = executor.program().io;
  const auto loss = executor.read_all<float>(io.loss);
  StepResult result{static_cast<double>(loss[0]), static_cast<double>(loss[1])};
  if (io.grad_norm != kNone)
    result.grad_norm = static_cast<double>(executor.read_all<float>(io.grad_norm)[0]);
  if (io.micro_square != kNone)
    result.micro_square = static_cast<double>(executor.read_all<float>(io.micro_square)[0]);
  return result;
}

Result<StepResult> run_step(Executor& executor, std::int64_t step, double learning_rate) {
  QT_TRY(start_step(executor, step, learning_rate));
  return finish_step(executor);
}

}  // namespace quintet
