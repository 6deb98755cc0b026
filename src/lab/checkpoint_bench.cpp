#include "lab/checkpoint_bench.h"

#include <algorithm>

#include "base/clock.h"
#include "base/file_store.h"
#include "base/index.h"
#include "base/philox.h"
#include "lab/step_bench.h"
#include "train/checkpoint_writer.h"
#include "train/feed.h"
#include "train/fit.h"

namespace quintet {
namespace {

// What anybody would write: one file, one thread, large writes, one flush.
Result<double> plain_write(const Path& path, std::int64_t bytes) {
  constexpr std::int64_t kWrite = std::int64_t{16} << 20;
  std::vector<std::byte> buffer(index(kWrite));
  PhiloxSequence random(1, 1);  // no file system should find a pattern to save on
  for (std::byte& b : buffer) b = static_cast<std::byte>(random.next());
  const double began = now();
  FileStore& files = local_files();
  for (std::int64_t done = 0; done < bytes; done += kWrite) {
    const std::int64_t count = std::min(kWrite, bytes - done);
    QT_TRY(files.append(path, std::span(buffer).first(index(count))));
  }
  QT_TRY(files.sync(path));
  const double seconds = now() - began;
  QT_TRY(files.remove(path));
  return seconds;
}

Result<double> run_once(Executor& executor) {
  const double began = now();
  QT_TRY(executor.run());
  QT_TRY(executor.wait());
  return now() - began;
}

}  // namespace

Result<CheckpointBench> bench_checkpoint(const StepOptions& options, const Path& folder,
                                         int repetitions) {
  const auto world = make_single_world();
  const Program program = compile_step(options);
  QT_ASSIGN(auto executor, make_fitting_executor(program, options, *world));
  ModelState state(*executor, *world, options.model);
  state.initialise(1);
  QT_TRY(feed_random(*executor, options));
  QT_TRY(run_step(*executor, 1, 1e-4));

  CheckpointBench bench;
  std::vector<double> steps;
  for (int i = 0; i < 5; ++i) {
    QT_ASSIGN(const double seconds, run_once(*executor));
    steps.push_back(seconds);
  }
  std::sort(steps.begin(), steps.end());
  bench.step_seconds = steps[steps.size() / 2];
  bench.bytes = checkpoint_layout(state.weights(), state.values()).bytes();

  const Path run = folder / "quintet-bench-checkpoint";
  QT_TRY(make_directories(run));
  const auto clear = [&] { return local_files().remove_folder(run / "checkpoints"); };
  SaveOptions saving;
  saving.run_folder = run;
  saving.retention.newest = 0;  // removing old ones is not what is measured
  saving.background = true;
  QT_ASSIGN(const auto beside, CheckpointWriter::create(state, *executor, *world, saving, {}));
  saving.background = false;
  QT_ASSIGN(const auto waiting, CheckpointWriter::create(state, *executor, *world, saving, {}));
  bench.memory_bytes = beside->bytes();
  for (int i = 0; i < repetitions; ++i) {
    QT_ASSIGN(const double plain, plain_write(run / "plain", bench.bytes));
    bench.plain_seconds.push_back(plain);

    QT_TRY(waiting->save({1, 1, {}}));
    bench.waiting_seconds.push_back(waiting->still_seconds());
    QT_TRY(clear());

    const double began = now();
    QT_TRY(beside->save({2, 2, {}}));
    bench.still_seconds.push_back(beside->still_seconds());
    double stepping = 0;
    int count = 0;
    while (beside->busy()) {
      QT_ASSIGN(const double seconds, run_once(*executor));
      stepping += seconds;
      ++count;
      QT_TRY(beside->poll());
    }
    bench.durable_seconds.push_back(now() - began);
    bench.beside_seconds.push_back(stepping / std::max(count, 1));
    QT_TRY(clear());
  }
  QT_TRY(local_files().remove_folder(run));
  return bench;
}

}  // namespace quintet
