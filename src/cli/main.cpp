#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

#include "base/caught.h"
#include "base/text.h"
#include "cli/commands.h"
#include "parallel/communicator.h"
#include "parallel/outcome.h"
#include "runtime/cpu/blas_kernels.h"

namespace quintet {
namespace {

int report(const Error& error) {
  // What all ranks of a run find at the same time is said once; what was said by the ranks of a run
  // that we started is not repeated.
  if (error.message.empty()) return static_cast<int>(error.code);
  if (launcher_rank() == 0 || !all_ranks_find(error.code)) {
    leave_outcome(error);
    fmt::print(stderr, "quintet: {}\n", error.message);
  } else {
    // A launcher ends all ranks when the first one ends badly: rank 0 must have said why.
    ::usleep(500000);
  }
  return static_cast<int>(error.code);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Quintet: pre-trains encoder-decoder language models (the mT5 family), and measures how\n"
      "data, tensor and pipeline parallelism trade time, memory and communication.");
  app.set_version_flag("--version", "quintet " QUINTET_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.footer(
      "Exit codes: 0 success, 1 internal error, 2 usage or configuration, 3 bad input, 4 values "
      "differ,\n"
      "5 loss not finite, 6 out of memory, 7 input/output, 8 a rank was lost, 130 interrupted.");
  Action action;
  add_train(app, action);
  add_evaluate(app, action);
  add_launch(app, action);
  add_cluster(app, action);
  add_sweep(app, action);
  add_study(app, action);
  add_search(app, action);
  add_report(app, action);
  add_plan(app, action);
  add_generate(app, action);
  add_export(app, action);
  add_inspect(app, action);
  add_verify(app, action);
  add_bench(app, action);
  add_checkpoint(app, action);
  add_calibrate(app, action);
  add_config(app, action);
  add_data(app, action);
  add_tokenize(app, action);
  add_tokenizer(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (launcher_rank() != 0) {
      return error.get_exit_code() == 0 ? 0 : static_cast<int>(ErrorCode::kUsage);
    }
    if (argc > 1 && argv[1][0] != '-') {
      std::vector<std::string> names;
      for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
      if (std::find(names.begin(), names.end(), argv[1]) == names.end()) {
        const std::string near = nearest(argv[1], names);
        return report(usage_error("no subcommand \"{}\"{}; there are {}", argv[1],
                                  near.empty() ? "" : fmt::format(", did you mean {}?", near),
                                  join(names, ", ")));
      }
    }
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorCode::kUsage);
  }
  const Status status = action();
  return status.ok() ? 0 : report(status.error());
}

}  // namespace
}  // namespace quintet

// Two libraries read their settings when they are loaded, before main: so the program starts once
// more with better ones, unless the user has chosen. OpenMP's threads spin between two parallel
// regions, by default for so long that a step beside other work takes ten times as long; a bounded
// spin loses nothing on idle cores. OpenBLAS: blas_kernels.h.
static void start_with_better_settings(int argc, char** argv) {
  if (argc < 2) return;
  bool better = false;
  if (::getenv("OMP_WAIT_POLICY") == nullptr && ::getenv("GOMP_SPINCOUNT") == nullptr)
    better = ::setenv("GOMP_SPINCOUNT", "20000", 1) == 0;
  better = quintet::set_better_blas_kernels() || better;
  if (better) ::execv("/proc/self/exe", argv);  // where that fails, the default is what there is
}

int main(int argc, char** argv) {
  start_with_better_settings(argc, argv);
  int code = 0;
  try {
    code = quintet::run(argc, argv);
  } catch (...) {
    code = quintet::report(quintet::error_of_exception());
  }
  if (code == 0) return 0;
  // Without the usual farewell, in which MPI would wait for ranks that may not come.
  std::fflush(nullptr);
  ::_exit(code);
}
