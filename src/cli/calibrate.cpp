#include "lab/calibrate.h"

#include "cli/commands.h"

namespace quintet {

void add_calibrate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "calibrate", "measure a machine, for plan --machine to predict steps on it");
  auto options = std::make_shared<CalibrateOptions>();
  options->models = {"mt5-base", "mt5-large", "mt5-xl", "mt5-7b", "mt5-xxl"};
  options->micro_batches = {2, 8, 32};
  options->optimizers = {"adamw", "adamw+remainder", "adafactor+remainder"};
  auto device = std::make_shared<std::string>("cpu");
  auto threads = std::make_shared<int>(0);
  auto links = std::make_shared<bool>(false);
  auto no_grid = std::make_shared<bool>(false);
  command->add_option("--out", options->out, "machine file; what it has already is kept")
      ->type_name("FILE")
      ->required();
  command->add_option("--name", options->name, "what the machine is called in reports");
  command->add_option("--device", *device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--models", options->models, "models whose ops are measured")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--micro-batches", options->micro_batches,
                   "sequences computed at one time; others are interpolated")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      ->add_option("--optimizers", options->optimizers,
                   "whose updates are measured: adamw, adafactor, each with +remainder or without, "
                   "adamw also with +bf16 or +8bit moments")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--source", options->source, "tokens of the encoder's input")
      ->check(CLI::Range(3, 1 << 20))
      ->capture_default_str();
  command->add_option("--target", options->target, "tokens of the decoder")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--precision", options->precision, "fp32, bf16 or fp8")
      ->check(CLI::IsMember({"fp32", "bf16", "fp8"}))
      ->capture_default_str();
  command
      ->add_option("--accumulate", options->accumulate,
                   "2: also the ops that add to gradients of an earlier micro-batch")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  command->add_option("--tp", options->tp, "tensor-parallel ranks that the models are split over")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--threads", *threads, "CPU threads (0: one per core)")
      ->check(CLI::Range(0, 1024));
  command->add_option("--limit", options->limit, "stop after this many seconds; 0: when done")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--no-grid", *no_grid, "leave out products of sizes that no model has");
  command->add_flag("--links", *links,
                    "measure links between ranks instead, into a file that has ops already");
  command->footer(
      "Example: quintet calibrate --device cuda --out machines/mine.toml\n"
      "Links:   quintet launch -n 4 -- calibrate --links --out machines/mine.toml\n"
      "Measures ops by themselves, never a whole step. Interrupted or limited, the same command "
      "goes on where it stopped.");
  command->callback([=, &action] {
    action = [=]() -> Status {
      options->device.device = *device == "cuda" ? Device::kCuda : Device::kCpu;
      options->device.threads = *threads > 0 ? *threads : share_of_cores();
      options->grid = !*no_grid;
      if (*links) {
        QT_ASSIGN(const std::unique_ptr<World> world, join_world());
        return calibrate_links(*options, *world);
      }
      return calibrate_ops(*options);
    };
  });
}

}  // namespace quintet
