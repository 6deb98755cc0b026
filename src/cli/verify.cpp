#include <omp.h>

#include "base/caught.h"
#include "base/json.h"
#include "cli/commands.h"
#include "parallel/watchdog.h"
#include "train/golden.h"

namespace quintet {
namespace {

struct VerifyGoldenOptions {
  std::string folder;
  std::string precision = "fp32", recompute = "none", device = "cpu";
  std::int32_t accumulate = 1;
  LayoutConfig layout;
  bool json = false, all = false;
};

double worst(const std::vector<GoldenValue>& values) {
  double error = 0;
  for (const GoldenValue& value : values) error = std::max(error, value.error);
  return error;
}

// JSON has no infinity; a broken value is null there.
Json json_of(const GoldenValue& v) {
  return {{"name", v.name}, {"expected", v.expected}, {"actual", v.actual}, {"error", v.error}};
}
Json json_of(const std::vector<GoldenValue>& values) {
  auto list = Json::array();
  for (const GoldenValue& value : values) list.push_back(json_of(value));
  return list;
}

void print(const GoldenReport& r, bool all) {
  const auto line = [](const std::string& what, double error, double tolerance,
                       const std::string& more) {
    fmt::print("{:<22} {:>9.2e}  (at most {:.0e})  {}  {}\n", what, error, tolerance,
               error <= tolerance ? "ok  " : "FAIL", more);
  };
  const auto both = [](const GoldenValue& v) {
    return fmt::format("{:.8g}, expected {:.8g}", v.actual, v.expected);
  };
  line("loss", r.loss.error, r.tolerances.loss, both(r.loss));
  line("gradient norm", r.grad_norm.error, r.tolerances.grad_norm, both(r.grad_norm));
  line("worst gradient", r.gradients.front().error, r.tolerances.gradient,
       fmt::format("{} of {}", r.gradients.front().name, r.gradients.size()));
  line(fmt::format("AdamW, {} steps", r.adamw.size()), worst(r.adamw), r.tolerances.trace, "");
  line(fmt::format("Adafactor, {} steps", r.adafactor.size()), worst(r.adafactor),
       r.tolerances.trace, "");
  if (all) {
    for (const GoldenValue& g : r.gradients)
      line("gradient", g.error, r.tolerances.gradient, g.name);
    for (const GoldenValue& v : r.adamw)
      line("AdamW " + v.name, v.error, r.tolerances.trace, both(v));
    for (const GoldenValue& v : r.adafactor)
      line("Adafactor " + v.name, v.error, r.tolerances.trace, both(v));
  }
}

Status run(const VerifyGoldenOptions& options) {
  GoldenOptions golden;
  golden.dtype = options.precision == "bf16" ? DType::kBF16 : DType::kF32;
  QT_ASSIGN(golden.recompute, parse_recompute(options.recompute));
  golden.accumulate = options.accumulate;
  golden.target.threads = omp_get_max_threads();
  golden.target.device = options.device == "cuda" ? Device::kCuda : Device::kCpu;
  golden.layout = options.layout;
  golden.layout.whole_below = 0;  // models this small would else not be sharded at all
  QT_ASSIGN(const std::unique_ptr<World> world, join_world());
  QT_ASSIGN(const std::unique_ptr<Watchdog> watchdog,
            Watchdog::start(*world, options.layout.timeout));
  auto checked = [&]() -> Result<GoldenReport> {
    try {
      return check_golden(options.folder, golden, *world);
    } catch (...) {
      return error_of_exception();
    }
  }();
  if (!checked.ok()) return watchdog->fail(checked.error());
  const GoldenReport report = std::move(checked).value();
  const bool passed = world->minimum(world->rank() != 0 || report.passed() ? 1 : 0) == 1;
  watchdog->finish();
  if (world->rank() != 0) {
    if (passed) return {};
    return make_error(ErrorCode::kMismatch, "values are outside their tolerance");
  }
  if (options.json) {
    const Json json = {{"passed", report.passed()},
                       {"tolerances",
                        {{"loss", report.tolerances.loss},
                         {"grad_norm", report.tolerances.grad_norm},
                         {"gradient", report.tolerances.gradient},
                         {"trace", report.tolerances.trace}}},
                       {"loss", json_of(report.loss)},
                       {"grad_norm", json_of(report.grad_norm)},
                       {"gradients", json_of(report.gradients)},
                       {"adamw", json_of(report.adamw)},
                       {"adafactor", json_of(report.adafactor)}};
    fmt::print("{}\n", to_text(json, 2));
  } else {
    print(report, options.all);
  }
  if (passed) return {};
  return make_error(ErrorCode::kMismatch, "{}: values are outside their tolerance", options.folder);
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "verify", "compare loss, gradients and training curves with a folder of reference values");
  auto options = std::make_shared<VerifyGoldenOptions>();
  command
      ->add_option("folder", options->folder, "config.json, model.safetensors, batches.json, ...")
      ->required()
      ->type_name("DIR");
  command->add_option("--precision", options->precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command->add_option("--device", options->device, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--recompute", options->recompute, "none, selective or full")
      ->check(CLI::IsMember({"none", "selective", "full"}));
  command
      ->add_option("--accumulate", options->accumulate,
                   "split each batch into this many micro-batches")
      ->check(CLI::Range(1, 1 << 16));
  command
      ->add_option("--tp", options->layout.tp,
                   "tensor-parallel ranks (started by mpirun, srun or launch)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--pp", options->layout.pp, "pipeline stages")->check(CLI::Range(1, 1024));
  command->add_option("--zero", options->layout.zero, "ZeRO stage")->check(CLI::Range(0, 3));
  command->add_option("--schedule", options->layout.schedule, "1f1b or interleaved")
      ->check(CLI::IsMember({"1f1b", "interleaved"}));
  command
      ->add_option("--interleave", options->layout.interleave, "pieces of the model on each stage")
      ->check(CLI::Range(1, 64));
  command->add_flag("--json", options->json, "print JSON");
  command->add_flag("--all", options->all, "every gradient and every step, not only the worst");
  command->footer(
      "Exits with 4 where values differ by more than their tolerance.\n"
      "Example: quintet verify tests/goldens/grid");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace quintet
