#include <algorithm>
#include <numeric>
#include <optional>

#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/index.h"
#include "base/json.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/plan_time.h"
#include "cli/run_options.h"
#include "program/op_decl.h"
#include "runtime/accounting.h"
#include "runtime/backend.h"
#include "runtime/dry_run.h"
#include "train/saver.h"
#include "train/validation_data.h"

namespace quintet {
namespace {

// What one rank of a run takes.
struct RankPlan {
  std::int32_t rank = 0, stage = 0;
  DryRun dry;
  std::vector<Traffic> traffic;
  std::int64_t bytes_beside = 0;  // that the device takes beside the arena
  // What validation needs, parameters included, and how much of it the step would not have taken.
  std::int64_t validation = 0, validation_more = 0;
};

struct Plan {
  std::vector<RankPlan> stages;  // of each, its rank that takes most
  std::int64_t looked_at = 0;    // ranks
};

Json to_json(const RankPlan& plan) {
  Json at_peak, highest, traffic = Json::array();
  for (int c = 0; c < kStorageCount; ++c) {
    const auto name = std::string(name_of(static_cast<Storage>(c)));
    at_peak[name] = plan.dry.at_peak[static_cast<std::size_t>(c)];
    highest[name] = plan.dry.highest[static_cast<std::size_t>(c)];
  }
  for (const Traffic& row : plan.traffic) {
    traffic.push_back({{"method", name_of(row.method)},
                       {"op", name_of(row.kind)},
                       {"axis", row.axis},
                       {"ops", row.ops},
                       {"bytes", row.bytes}});
  }
  return {{"rank", plan.rank},
          {"stage", plan.stage},
          {"total_bytes", plan.dry.arena_bytes},
          {"host_bytes", plan.dry.host_bytes},
          {"bytes_at_peak", at_peak},
          {"unused_bytes", plan.dry.unused},
          {"highest_bytes", highest},
          {"peak_op", plan.dry.peak_op},
          {"peak_op_text", plan.dry.peak_op_text},
          {"flops", plan.dry.flops},
          {"recompute_flops", plan.dry.recompute_flops},
          {"ops", plan.dry.ops},
          {"validation_bytes", plan.validation},
          {"validation_more_bytes", plan.validation_more},
          {"sends", traffic}};
}

const RankPlan& largest(const std::vector<RankPlan>& stages) {
  return *std::max_element(stages.begin(), stages.end(), [](const auto& a, const auto& b) {
    return a.dry.arena_bytes < b.dry.arena_bytes;
  });
}

Json to_json(const StepOptions& step, const Plan& plan, std::int64_t saving) {
  const std::vector<RankPlan>& stages = plan.stages;
  Json json = {{"model", step.model.name},
               {"parameters", step.model.parameters()},
               {"ranks", step.grid.size()},
               {"ranks_looked_at", plan.looked_at},
               {"dp", step.grid.dp},
               {"tp", step.grid.tp},
               {"pp", step.grid.pp},
               {"zero", step.layout.zero},
               {"micro_batch", step.batch.micro_batch},
               {"accumulate", step.accumulate},
               {"source", step.batch.source},
               {"target", step.batch.target}};
  // The rank that takes most, as if it were the only one.
  json.update(to_json(largest(stages)));
  if (step.target.device == Device::kCuda)
    json["device_bytes"] = largest(stages).dry.arena_bytes + largest(stages).bytes_beside;
  json["saving_bytes"] = saving;
  json["stages"] = Json::array();
  for (const RankPlan& stage : stages) json["stages"].push_back(to_json(stage));
  return json;
}

std::string human(std::int64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

// Each stage in a line: memory by class, bytes sent by method.
void print_stages(const std::vector<RankPlan>& stages) {
  fmt::print("{:<6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}   {:>10} {:>10} {:>10}\n", "stage",
             "total", "parameter", "gradient", "optimizer", "activation", "rest", "sends data",
             "tensor", "pipeline");
  for (const RankPlan& stage : stages) {
    const auto& at = stage.dry.at_peak;
    const std::int64_t shown = at[0] + at[1] + at[2] + at[3];
    const auto sends = by_method(stage.traffic);
    fmt::print("{:<6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}   {:>10} {:>10} {:>10}\n",
               stage.stage, human(stage.dry.arena_bytes), human(at[0]), human(at[1]), human(at[2]),
               human(at[3]), human(stage.dry.arena_bytes - shown), human(sends[1]), human(sends[2]),
               human(sends[3]));
  }
  fmt::print("\n");
}

void print_memory(const RankPlan& rank, std::int64_t saving) {
  const DryRun& plan = rank.dry;
  fmt::print("{:<12} {:>22} {:>14}   {:>14}\n", "memory", "bytes at the peak", "", "highest");
  for (int c = 0; c < kStorageCount; ++c) {
    const auto i = static_cast<std::size_t>(c);
    if (plan.highest[i] == 0) continue;
    fmt::print("{:<12} {:>22} {:>14}   {:>14}\n", name_of(static_cast<Storage>(c)),
               with_commas(plan.at_peak[i]), human(plan.at_peak[i]), human(plan.highest[i]));
  }
  fmt::print("{:<12} {:>22} {:>14}\n", "unused", with_commas(plan.unused), human(plan.unused));
  fmt::print("{:<12} {:>22} {:>14}\n", "total", with_commas(plan.arena_bytes),
             human(plan.arena_bytes));
  if (rank.validation > 0) {
    fmt::print("{:<12} {:>22} {:>14}   {}\n", "validation", with_commas(rank.validation),
               human(rank.validation),
               rank.validation_more == 0
                   ? std::string("of the same memory, between two steps")
                   : fmt::format("of the same memory; {} of the total for it alone",
                                 human(rank.validation_more)));
  }
  if (plan.host_bytes > 0) {
    fmt::print("{:<12} {:>22} {:>14}   offloaded, beside it\n", "host",
               with_commas(plan.host_bytes), human(plan.host_bytes));
  }
  if (saving > 0) {
    fmt::print("{:<12} {:>22} {:>14}   host memory at most, while a checkpoint is written\n",
               "saving", with_commas(saving), human(saving));
  }
  fmt::print("\n");
  fmt::print("peak at op #{}: {}\n", plan.peak_op, plan.peak_op_text);
}

void print_traffic(const std::vector<Traffic>& traffic) {
  if (traffic.empty()) return;
  fmt::print("\n{:<9} {:<21} {:<12} {:>6} {:>18}\n", "for", "sends", "along", "ops",
             "bytes per step");
  for (const Traffic& row : traffic) {
    fmt::print("{:<9} {:<21} {:<12} {:>6} {:>18}\n", name_of(row.method), name_of(row.kind),
               row.axis, row.ops, with_commas(row.bytes));
  }
}

void print(const StepOptions& step, const Plan& plan, std::int64_t saving) {
  const std::vector<RankPlan>& stages = plan.stages;
  const RankPlan& most = largest(stages);
  fmt::print("{}: {} parameters", step.model.name, with_commas(step.model.parameters()));
  if (step.grid.size() > 1) {
    fmt::print(" on {} ranks: {}; their programs fit together", step.grid.size(),
               layout_name(step));
  }
  fmt::print("\nstep: {} x {} sequences{}, {} source + {} target tokens, {} ops, {:.3f} TFLOP",
             step.accumulate, step.batch.micro_batch, step.grid.dp > 1 ? " on each data rank" : "",
             step.batch.source, step.batch.target, most.dry.ops, most.dry.flops * 1e-12);
  if (most.dry.recompute_flops > 0)
    fmt::print(" + {:.3f} recomputed", most.dry.recompute_flops * 1e-12);
  fmt::print("{}\n\n", stages.size() > 1 ? fmt::format(" on stage {}", most.stage) : "");
  if (stages.size() > 1) print_stages(stages);
  if (step.grid.size() > 1) {
    fmt::print("rank {}, which takes most of {}:\n", most.rank,
               plan.looked_at == step.grid.size()
                   ? fmt::format("all {}", plan.looked_at)
                   : fmt::format("the {} looked at", plan.looked_at));
  }
  print_memory(most, saving);
  if (step.target.device == Device::kCuda) {
    fmt::print("\non the GPU, with what the driver and the libraries take: {}\n",
               human(most.dry.arena_bytes + most.bytes_beside));
  }
  print_traffic(most.traffic);
}

// The ranks whose programs are compiled to find the one that takes most: all, or of a large world
// so many. There of each stage the first and the last tensor-parallel rank (the first counts what
// all have, else they are alike), and of data-parallel ranks, which differ by the weights that
// begin and end in their shards, those of the first copy of what is sharded, from the first to the
// last at equal distances. What another one takes more is a few small tensors.
std::vector<std::int32_t> ranks_to_look_at(const StepOptions& step) {
  constexpr std::int32_t kMost = 64;
  const Grid& grid = step.grid;
  std::vector<std::int32_t> ranks;
  if (grid.size() <= kMost) {
    ranks.resize(index(grid.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  const auto group = static_cast<std::int32_t>(step.layout.shard_group);
  const std::int32_t tps = std::min(grid.tp, 2);
  const std::int32_t shards = step.layout.zero == 0 ? 1 : group > 0 ? group : grid.dp;
  const std::int32_t dps = std::min(shards, std::max(kMost / (grid.pp * tps), 2));
  const auto spread = [](std::int64_t i, std::int64_t count, std::int64_t all) {
    return static_cast<std::int32_t>(count == 1 ? 0 : i * (all - 1) / (count - 1));
  };
  for (std::int32_t pp = 0; pp < grid.pp; ++pp)
    for (std::int32_t dp = 0; dp < dps; ++dp)
      for (std::int32_t tp = 0; tp < tps; ++tp)
        ranks.push_back(grid.rank_of(spread(dp, dps, shards), spread(tp, tps, grid.tp), pp));
  return ranks;
}

RankPlan plan_of_rank(const StepOptions& step, const std::optional<StepOptions>& validation,
                      std::int32_t rank, const Backend& backend) {
  Program program = compile_step(step, rank);
  std::int64_t needs = 0, more = 0;
  if (validation) {
    needs = compile_beside(*validation, program).arena_bytes;
    more = std::max<std::int64_t>(needs - program.arena_bytes, 0);
    program.arena_bytes += more;
  }
  return {rank,
          program.place.pp,
          dry_run(program),
          traffic_of(program, backend),
          backend.bytes_beside_arena(program),
          needs,
          more};
}

// Of each stage the rank that takes most of those looked at. `played`: the step's programs are
// known to fit together. `validation`: the options of validation between the steps, where there is
// any.
Result<Plan> plan_of(const StepOptions& step, const std::optional<StepOptions>& validation,
                     bool played) {
  if (validation && step.grid.size() > 1) {
    const auto findings = verify_all_ranks(*validation);
    if (!findings.empty()) {
      return make_error(ErrorCode::kInternal, "the ranks' validation does not fit together:\n  {}",
                        join(findings, "\n  "));
    }
  }
  if (!played && step.grid.size() > 1) {
    const auto findings = verify_all_ranks(step);
    if (!findings.empty()) {
      return make_error(ErrorCode::kInternal, "the ranks' programs do not fit together:\n  {}",
                        join(findings, "\n  "));
    }
  }
  const auto backend = make_backend(step.target);
  const std::vector<std::int32_t> ranks = ranks_to_look_at(step);
  std::vector<RankPlan> plans(ranks.size());
  parallel_items(std::ssize(ranks), true, [&](std::int64_t i, int) {
    plans[index(i)] = plan_of_rank(step, validation, ranks[index(i)], *backend);
  });
  Plan plan{std::vector<RankPlan>(index(step.grid.pp)), std::ssize(ranks)};
  for (RankPlan& one : plans) {
    RankPlan& most = plan.stages[index(one.stage)];
    if (one.dry.arena_bytes > most.dry.arena_bytes) most = std::move(one);
  }
  return plan;
}

// What --machine and its options ask for.
struct MachineOptions {
  std::string file;
  std::int64_t nodes = 0;
  std::int64_t best = 0;  // 0: not asked for
  bool no_prune = false;
  bool json = false;
};

Status print_best(const StepOptions& step, const Machine& machine, const MachineOptions& options) {
  SearchOptions search{.keep = options.best, .nodes = options.nodes, .prune = !options.no_prune};
  const bool shows = ::isatty(STDERR_FILENO) == 1;
  if (shows) {
    search.progress = [](std::int64_t done, std::int64_t all) {
      fmt::print(stderr, "\r{} of {} layouts decided", done, all);
    };
  }
  const double began = now();
  QT_ASSIGN(const LayoutSearch found, best_layouts(step, machine, search));
  if (shows) fmt::print(stderr, "\r\033[K");
  if (options.json) {
    fmt::print("{}\n", to_text(search_json(found), 2));
  } else {
    print_search(found, machine, now() - began);
  }
  return {};
}

Status run_plan(const RunOptions& options, const MachineOptions& asked) {
  QT_ASSIGN(RunConfig config, options.load());
  std::optional<Machine> machine;
  if (!asked.file.empty()) {
    QT_ASSIGN(machine, Machine::load(asked.file));
    QT_TRY(adapt_to(*machine, config));
  } else if (asked.nodes > 0 || asked.best > 0) {
    return usage_error("{} needs a machine to predict for: add --machine FILE (see machines/)",
                       asked.best > 0 ? "--best" : "--nodes");
  }
  QT_ASSIGN(const StepOptions step, step_options(config, options.ranks()));
  if (asked.best > 0) return print_best(step, *machine, asked);
  std::optional<Simulation> simulation;
  if (machine) {
    QT_ASSIGN(simulation, simulate(step, *machine, asked.nodes));
    if (!config.output.trace.empty()) {
      QT_TRY(write_file(config.output.trace, trace_of(*simulation, *make_backend(step.target))));
    }
  }
  std::optional<StepOptions> validation;
  if (config.validate.every > 0) {
    QT_ASSIGN(const ValidationData data, open_validation_data(config, step));
    validation = validation_options(step, data.padded);
  }
  QT_ASSIGN(const Plan plan, plan_of(step, validation, simulation.has_value()));
  if (config.output.folder.empty()) config.output.folder = "anywhere";  // as a run that saves
  const std::int64_t saving = saving_bytes(config.output, step);
  if (asked.json) {
    Json json = to_json(step, plan, saving);
    if (simulation) json.update(time_json(*simulation, *machine));
    fmt::print("{}\n", to_text(json, 2));
    return {};
  }
  print(step, plan, saving);
  if (simulation) print_time(*simulation, *machine);
  return {};
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "plan", "predict a run without running it: memory to the byte; with --machine its time");
  auto options = std::make_shared<RunOptions>(*command);
  options->add_ranks(*command);
  auto asked = std::make_shared<MachineOptions>();
  command->add_option("--machine", asked->file, "machine to predict the time for (machines/*.toml)")
      ->type_name("FILE");
  command
      ->add_option("--nodes", asked->nodes,
                   "nodes the ranks are spread over (default: the machine's, or as many as needed)")
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option_function<std::int64_t>(
          "--best", [asked](std::int64_t keep) { asked->best = keep; },
          "find the K fastest layouts of these ranks at this global batch (default: 5)")
      ->type_name("K")
      ->expected(0, 1)
      ->default_str("5")
      ->check(CLI::Range(1, 1 << 20));
  command->add_flag("--no-prune", asked->no_prune,
                    "--best: simulate every layout that may fit, for the whole trade-off front");
  command->add_flag("--json", asked->json, "print JSON");
  command->footer(
      "Example: quintet plan --model mt5-xl --micro-batch 8 --source 1024 --target 256 "
      "--precision bf16\n"
      "A cluster: quintet plan --model mt5-xxl --ranks 2048 --tp 8 --pp 4 --zero 3 --micro-batch 1 "
      "--accumulate 8 --source 1024 --target 256 --precision bf16\n"
      "Its time: the same with --machine machines/dgx-h100.toml, and --trace FILE for the time "
      "line\n"
      "The best: quintet plan --model mt5-base --ranks 4 --micro-batch 4 --accumulate 2 --source "
      "512 --target 128 --precision bf16 --machine machines/dgx-a100.toml --best 5");
  command->callback([options, asked, &action] {
    action = [options, asked] { return run_plan(*options, *asked); };
  });
}

}  // namespace quintet
