#include "train/fit.h"

#include <vector>

#include "base/text.h"
#include "train/host_fit.h"

namespace quintet {
namespace {

struct Change {
  std::string text;
  StepOptions options;
};

// Cheapest in time first, each alone; then the micro-batch.
std::vector<Change> changes_of(const StepOptions& options) {
  std::vector<Change> changes;
  const auto add = [&](std::string text, const auto& change) {
    changes.push_back({std::move(text), options});
    change(changes.back().options);
  };
  const bool bf16 = options.options.dtype == DType::kBF16;
  if (bf16 && options.optimizer.master != "remainder")
    add("optimizer.master = \"remainder\"",
        [](StepOptions& o) { o.optimizer.master = "remainder"; });
  if (options.recompute == Recompute::kNone)
    add("train.recompute = \"selective\"",
        [](StepOptions& o) { o.recompute = Recompute::kSelective; });
  if (options.recompute != Recompute::kFull)
    add("train.recompute = \"full\"", [](StepOptions& o) { o.recompute = Recompute::kFull; });
  if (options.optimizer.name == "adamw" && options.optimizer.moments != "8bit")
    add("optimizer.moments = \"8bit\"", [](StepOptions& o) { o.optimizer.moments = "8bit"; });
  const auto take_adafactor = [](StepOptions& o) {
    o.optimizer.name = "adafactor";
    o.optimizer.moments = "fp32";
  };
  if (options.optimizer.name != "adafactor") add("optimizer.name = \"adafactor\"", take_adafactor);
  if (options.optimizer.offload < 1)
    add("optimizer.offload = 1", [](StepOptions& o) { o.optimizer.offload = 1; });
  for (std::int64_t size = options.batch.micro_batch / 2; size >= 1; size /= 2) {
    add(fmt::format("batch.micro_batch = {} with {} times the batch.accumulate", size,
                    options.batch.micro_batch / size),
        [&](StepOptions& o) {
          o.accumulate *= static_cast<std::int32_t>(o.batch.micro_batch / size);
          o.batch.micro_batch = size;
        });
  }
  add("all of: full recompute, adafactor, offload, micro-batches of one sequence",
      [&](StepOptions& o) {
        o.recompute = Recompute::kFull;
        take_adafactor(o);
        o.optimizer.offload = 1;
        if (bf16) o.optimizer.master = "remainder";
        o.accumulate *= static_cast<std::int32_t>(o.batch.micro_batch);
        o.batch.micro_batch = 1;
      });
  return changes;
}

}  // namespace

std::string nearest_that_fit(const StepOptions& options, std::int32_t rank, std::int64_t bytes) {
  constexpr std::size_t kEnough = 3;
  std::vector<std::string> found;
  for (const Change& change : changes_of(options)) {
    if (found.size() == kEnough) break;
    if (!validate(change.options).ok()) continue;
    const Program program = compile_step(change.options, rank);
    // On the CPU host memory is no other memory.
    const bool apart = options.target.device != Device::kCpu;
    const std::int64_t needs = program.arena_bytes + (apart ? 0 : program.host_bytes);
    if (needs > bytes || (apart && program.host_bytes > free_cpu_bytes())) continue;
    found.push_back(fmt::format("{} ({})", change.text, human_bytes(static_cast<double>(needs))));
  }
  return join(found, "; ");
}

namespace {

// Host memory for the step and for saving it.
Status fits_on_host(const Program& program, const StepOptions& options, std::int64_t saving) {
  const std::int64_t free = free_cpu_bytes();
  const std::int64_t step =
      program.host_bytes + (options.target.device == Device::kCpu ? program.arena_bytes : 0);
  if (saving == 0 || free < 0 || step > free || step + saving <= free) return {};
  return make_error(ErrorCode::kOutOfMemory,
                    "the step needs {} of host memory, a copy of weights and optimizer state for "
                    "checkpoints {} more, and the machine has {} free. With "
                    "output.background=false training waits while a checkpoint is written, and "
                    "needs no copy",
                    human_bytes(static_cast<double>(step)),
                    human_bytes(static_cast<double>(saving)),
                    human_bytes(static_cast<double>(free)));
}

}  // namespace

Result<std::unique_ptr<Executor>> make_fitting_executor(const Program& program,
                                                        const StepOptions& options, World& world,
                                                        std::int64_t saving) {
  const std::int64_t step =
      program.host_bytes + (options.target.device == Device::kCpu ? program.arena_bytes : 0);
  QT_TRY(fits_on_hosts(step, saving, world));
  QT_TRY(fits_on_host(program, options, saving));
  auto made = make_executor(program, world);
  if (made.ok() || made.error().code != ErrorCode::kOutOfMemory) return made;
  const std::int64_t free = free_bytes(options.target.device);
  const std::string nearest = nearest_that_fit(options, world.rank(), free);
  return make_error(
      ErrorCode::kOutOfMemory, "{}. {}", made.error().message,
      nearest.empty() ? std::string("Nothing near these settings fits") : "What fits: " + nearest);
}

}  // namespace quintet
