// What a step takes is what was planned: of the system's memory, and of the allocator while it
// runs, nothing.
#include <atomic>
#include <cstdlib>
#include <fstream>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/dry_run.h"
#include "tests/support/programs.h"
#include "train/feed.h"
#include "train/model_state.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<long> allocations{0};
}  // namespace

// Every allocation of the process comes through here, those of the libraries too.
extern "C" void* malloc(std::size_t size) {
  using Malloc = void* (*)(std::size_t);
  static const auto next = reinterpret_cast<Malloc>(::dlsym(RTLD_NEXT, "malloc"));
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  return next(size);
}

namespace quintet {
namespace {

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

void feed_something(Executor& executor, const StepOptions& options) {
  Batch batch;
  batch.resize(options.batch.micro_batch, options.batch.source, options.batch.target);
  for (std::size_t i = 0; i < batch.source.size(); ++i)
    batch.source[i] = static_cast<std::int32_t>(i % 150);
  for (std::size_t i = 0; i < batch.labels.size(); ++i)
    batch.labels[i] = static_cast<std::int32_t>(i % 140);
  shift_right(batch.labels, batch.target_length, 0, 0, batch.target);
  for (std::int32_t m = 0; m < options.accumulate; ++m) {
    ASSERT_TRUE(feed(executor, m, batch, options).ok());
  }
}

TEST(Memory, AStepAllocatesNothing) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const char* optimizer : {"adamw", "adafactor"}) {
      StepOptions options = testing::tiny_step();
      options.options.dtype = options.options.grad_dtype = dtype;
      options.optimizer.name = optimizer;
      options.model.dropout = 0.1;
      options.accumulate = 2;
      const Program program = compile_step(options);
      const auto world = make_single_world();
      const auto executor = make_cpu_executor(program, *world);
      ModelState(*executor.value(), *world, options.model).initialise(1);
      feed_something(*executor.value(), options);
      ASSERT_TRUE(executor.value()->run().ok());  // libraries make their buffers on first use
      allocations = 0;
      counting = true;
      const bool ok = executor.value()->run().ok();
      counting = false;
      EXPECT_TRUE(ok);
      EXPECT_EQ(allocations.load(), 0) << optimizer;
    }
  }
}

TEST(Memory, TheProcessGrowsByTheArena) {
  StepOptions options;
  options.model = preset("mt5-small").value();
  options.batch = {2, 64, 16, false};
  options.target.threads = 2;
  const Program program = compile_step(options);
  const auto world = make_single_world();
  const std::int64_t before = resident_bytes();
  const auto executor = make_cpu_executor(program, *world);
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  ModelState(*executor.value(), *world, options.model).initialise(1);
  feed_something(*executor.value(), options);
  ASSERT_TRUE(run_step(*executor.value(), 1, 1e-3).ok());
  const auto grown = static_cast<double>(resident_bytes() - before);
  const auto arena = static_cast<double>(program.arena_bytes);
  EXPECT_EQ(dry_run(program).arena_bytes, executor.value()->arena_bytes());
  EXPECT_NEAR(grown, arena, 0.03 * arena);
  RecordProperty("grown_bytes", std::to_string(grown));
  fmt::print("arena {} bytes, process grew by {:.0f}: {:+.2f} %\n", program.arena_bytes, grown,
             100 * (grown - arena) / arena);
}

}  // namespace
}  // namespace quintet
