#include "cli/commands.h"
#include "cli/run_options.h"
#include "train/agreement.h"
#include "train/run_signals.h"
#include "train/trainer.h"

namespace quintet {

void add_train(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("train", "train a model");
  auto options = std::make_shared<RunOptions>(*command);
  command->footer(
      "Alone: quintet train --model tiny --set train.steps=500 --set output.folder=runs/first\n"
      "On 4 ranks, also by mpirun or srun: quintet launch -n 4 -- train --tp 2 --zero 1");
  command->callback([options, &action] {
    action = [options]() -> Status {
      const RunSignals signals;  // may come while MPI is still starting
      QT_ASSIGN(const std::unique_ptr<World> world, join_world());
      Result<RunConfig> config = agree_on_config(options->load(), *world);
      if (!config.ok()) return told_by_rank_0(config.error(), *world);
      const std::int64_t stop_after = config.value().train.stop_after;
      QT_ASSIGN(const TrainResult result, train(std::move(config).value(), *world));
      if (world->rank() != 0) return {};
      if (result.ended_early && result.was_done) {
        fmt::print(
            "nothing to do: training ended at step {}, out of validate.patience; set it to 0 to go "
            "on\n",
            result.steps);
        return {};
      }
      if (result.was_done) {
        fmt::print("nothing to do: already trained to step {}; {} to go on\n", result.steps,
                   result.steps == stop_after ? "raise train.stop_after, or leave it out,"
                                              : "raise train.steps");
        return {};
      }
      fmt::print("trained to step {}, final loss {:.4f}", result.steps, result.final_loss);
      if (result.optimal_loss > 0) {
        fmt::print(" (the best possible on this data: {:.4f})", result.optimal_loss);
      }
      if (const auto best = result.summary.best_validation)
        fmt::print("; best validation loss {:.4f} at step {}", *best, result.summary.best_step);
      fmt::print("\n");
      if (result.ended_early) {
        fmt::print("ended early: validation got no better since step {} (validate.patience)\n",
                   result.summary.best_step);
      }
      fmt::print("\n{}", describe(result.summary));
      return {};
    };
  });
}

}  // namespace quintet
