#include "train/ledger.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "program/printer.h"
#include "runtime/dry_run.h"
#include "runtime/trace.h"

namespace quintet {
namespace {

Json json_of(const StepAccount& a) {
  Json json = {{"step", a.step},           {"data_wait", a.data_wait}, {"compute", a.compute},
               {"recompute", a.recompute}, {"optimizer", a.optimizer}, {"bubble", a.bubble},
               {"other", a.other}};
  for (std::size_t m = 1; m < kMethodCount; ++m) {
    const std::string method(name_of(static_cast<Method>(m)));
    json["exposed"][method] = a.exposed[m];
    json["hidden"][method] = a.hidden[m];
  }
  return json;
}

StepAccount account_from(const Json& json) {
  StepAccount a;
  a.step = json.at("step");
  a.data_wait = json.at("data_wait");
  a.compute = json.at("compute");
  a.recompute = json.at("recompute");
  a.optimizer = json.at("optimizer");
  a.bubble = json.at("bubble");
  a.other = json.at("other");
  for (std::size_t m = 1; m < kMethodCount; ++m) {
    const std::string method(name_of(static_cast<Method>(m)));
    a.exposed[m] = json.at("exposed").at(method);
    a.hidden[m] = json.at("hidden").at(method);
  }
  return a;
}

Json json_of(const std::vector<Traffic>& traffic) {
  Json rows = Json::array();
  for (const Traffic& row : traffic) {
    rows.push_back({{"method", name_of(row.method)},
                    {"op", name_of(row.kind)},
                    {"axis", row.axis},
                    {"ops", row.ops},
                    {"bytes", row.bytes}});
  }
  return rows;
}

template <class Enum>
Enum named(const std::string& name, int count) {
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  return static_cast<Enum>(0);
}

std::vector<Traffic> traffic_from(const Json& rows) {
  std::vector<Traffic> traffic;
  for (const Json& row : rows) {
    traffic.push_back({named<Method>(row.at("method"), kMethodCount),
                       named<OpKind>(row.at("op"), kOpKindCount), row.at("axis"), row.at("ops"),
                       row.at("bytes")});
  }
  return traffic;
}

Json json_of(const RankSummary& r) {
  return {{"rank", r.rank},
          {"dp", r.dp},
          {"tp", r.tp},
          {"pp", r.pp},
          {"predicted_bytes", r.predicted_bytes},
          {"arena_bytes", r.arena_bytes},
          {"resident_bytes", r.resident_bytes},
          {"host_bytes", r.host_bytes},
          {"seconds", json_of(r.account)},
          {"traffic_planned", json_of(r.planned)},
          {"traffic_counted", json_of(r.counted)}};
}

RankSummary rank_from(const Json& json) {
  RankSummary r;
  r.rank = json.at("rank");
  r.dp = json.at("dp");
  r.tp = json.at("tp");
  r.pp = json.at("pp");
  r.predicted_bytes = json.at("predicted_bytes");
  r.arena_bytes = json.at("arena_bytes");
  r.resident_bytes = json.at("resident_bytes");
  r.host_bytes = integer_in(json, "host_bytes", 0);
  r.account = account_from(json.at("seconds"));
  r.planned = traffic_from(json.at("traffic_planned"));
  r.counted = traffic_from(json.at("traffic_counted"));
  return r;
}

}  // namespace

StepAccount RunSummary::mean_account() const {
  StepAccount mean;
  for (const RankSummary& rank : ranks) mean += rank.account;
  if (!ranks.empty()) mean *= 1.0 / static_cast<double>(ranks.size());
  return mean;
}

std::int64_t RunSummary::largest_arena() const {
  std::int64_t largest = 0;
  for (const RankSummary& rank : ranks) largest = std::max(largest, rank.arena_bytes);
  return largest;
}

std::string RunSummary::to_json() const {
  Json json = {{"model", model},           {"layout", layout},
               {"steps", steps},           {"step_seconds", step_seconds},
               {"final_loss", final_loss}, {"fingerprint", fingerprint}};
  if (validation_loss) json["validation_loss"] = *validation_loss;
  if (best_validation) {
    json["best_validation"] = *best_validation;
    json["best_step"] = best_step;
  }
  if (looks > 0) json["timed_op_by_op"] = {{"steps", looks}, {"cost_share", look_cost}};
  json["ranks"] = Json::array();
  for (const RankSummary& rank : ranks) json["ranks"].push_back(json_of(rank));
  return to_text(json, 1) + "\n";
}

Result<RunSummary> RunSummary::from_json(const std::string& text, const std::string& name) {
  QT_ASSIGN(const Json json, parse_json(text, name));
  try {
    RunSummary summary;
    summary.model = json.at("model");
    summary.layout = json.at("layout");
    summary.steps = json.at("steps");
    summary.step_seconds = json.at("step_seconds");
    summary.final_loss = json.at("final_loss");
    summary.fingerprint = json.value("fingerprint", "");
    if (json.contains("timed_op_by_op")) {
      summary.looks = json.at("timed_op_by_op").at("steps");
      summary.look_cost = json.at("timed_op_by_op").at("cost_share");
    }
    for (const Json& rank : json.at("ranks")) summary.ranks.push_back(rank_from(rank));
    return summary;
  } catch (const Json::exception& error) {
    return make_error(ErrorCode::kBadInput, "{}: not the summary of a run: {}", name, error.what());
  }
}

std::string describe(const RunSummary& summary) {
  const StepAccount mean = summary.mean_account();
  if (!(mean.step > 0)) {
    return fmt::format(
        "{}, {}: no time breakdown; the run had only steps that output.summary_skip leaves out\n",
        summary.model, summary.layout);
  }
  std::string text =
      fmt::format("{}, {}: {:.2f} ms per step (median)\n\n{:<18} {:>10} {:>7}\n", summary.model,
                  summary.layout, summary.step_seconds * 1e3, "mean of all steps", "ms", "share");
  const auto row = [&](const std::string& name, double seconds) {
    text +=
        fmt::format("{:<18} {:>10.3f} {:>6.1f}%\n", name, seconds * 1e3, 100 * seconds / mean.step);
  };
  for (const AccountPart& part : parts_of(mean)) {
    if (std::abs(part.seconds) >= 1e-9) row(part.name, part.seconds);
  }
  row("total", mean.step);
  for (std::size_t m = 1; m < kMethodCount; ++m) {
    if (mean.hidden[m] < 1e-9) continue;
    text += fmt::format("{:<18} {:>10.3f}   beside computation\n",
                        fmt::format("hidden {}", name_of(static_cast<Method>(m))),
                        mean.hidden[m] * 1e3);
  }
  if (summary.looks > 0) {
    text += fmt::format(
        "\n{} of the steps {} timed op by op and represent{} all; that cost {:.2f} % of the run\n",
        summary.looks, summary.looks == 1 ? "was" : "were", summary.looks == 1 ? "s" : "",
        100 * summary.look_cost);
  }
  if (summary.ranks.empty() || summary.ranks[0].planned.empty()) return text;
  text += fmt::format("\n{:<9} {:<21} {:<8} {:>6} {:>16}   {}\n", "for", "rank 0 sends", "along",
                      "ops", "bytes per step", "counted");
  for (std::size_t i = 0; i < summary.ranks[0].planned.size(); ++i) {
    const Traffic& row = summary.ranks[0].planned[i];
    const std::int64_t counted = summary.ranks[0].counted[i].bytes;
    text += fmt::format("{:<9} {:<21} {:<8} {:>6} {:>16}   {}\n", name_of(row.method),
                        name_of(row.kind), row.axis, row.ops, with_commas(row.bytes),
                        counted == row.bytes ? "the same" : with_commas(counted));
  }
  return text;
}

Ledger::Ledger(World& world, const Grid& grid, const Program& program, const Backend& backend,
               TraceOptions trace, std::int64_t skip)
    : world_(world),
      program_(program),
      backend_(backend),
      trace_(std::move(trace)),
      skip_(skip),
      looks_(skip + 1),
      peers_(world, grid, program),
      starts_(program.ops.size()) {
  if (!trace_.file.empty()) {
    // Everybody's clock at the moment that rank 0's showed the origin.
    const auto offset = clock_offsets(world)[static_cast<std::size_t>(world.rank())];
    origin_ = std::stod(world.broadcast(fmt::format("{:.9f}", now()))) + offset;
    events_ = trace_names(program);
  }
}

bool Ledger::wants_ops(std::int64_t number) {
  if (backend_.times_every_run()) return true;
  // All ranks together, or one would see others where they were not.
  looked_ = world_.minimum(is_traced(number) || looks_.is_due(runs_ + 1) ? 1 : 0) == 1;
  return looked_;
}

Status Ledger::step(std::int64_t number, double began, std::span<const OpTiming> timings,
                    double data_wait, double run_seconds) {
  for (std::size_t i = 0; i < timings.size(); ++i) starts_[i] = timings[i].start;
  // Where the host carries tensors between GPUs, no op is timed, asked or not.
  looked_ = looked_ && std::any_of(timings.begin(), timings.end(),
                                   [](const OpTiming& t) { return t.end > 0; });
  const auto others_came = peers_.exchange(began, starts_);
  ++runs_;
  if (is_traced(number)) {
    events_ += trace_events(program_, backend_, timings, number, began - origin_, data_wait);
    if (number == trace_.first + trace_.count - 1) QT_TRY(write_trace());
  }
  if (runs_ > skip_) {
    StepAccount account =
        account_of(program_, backend_, timings, run_seconds, data_wait, others_came);
    // A step that was not looked at is booked like the last one that was. It may have been faster:
    // events between ops take time, too.
    if (!backend_.times_every_run() && account.other < 0) {
      const double busy = run_seconds - account.other;
      account *= run_seconds / busy;
      account.step = run_seconds + data_wait;
      account.data_wait = data_wait;
      account.other = 0;
    }
    total_ += account;
    seconds_.push_back(run_seconds + data_wait);
    if (!backend_.times_every_run()) looks_.add(run_seconds, looked_);
  }
  return {};
}

Status Ledger::write_trace() {
  std::string all;
  for (const std::string& events : world_.gather(events_)) all += events;
  events_.clear();
  if (world_.rank() != 0) return {};
  return write_file(trace_.file, trace_file(all));
}

RunSummary Ledger::close(const Executor& executor) {
  const Program& program = program_;
  RankSummary mine;
  mine.rank = program.place.rank;
  mine.dp = program.place.dp;
  mine.tp = program.place.tp;
  mine.pp = program.place.pp;
  mine.account = total_;
  if (!seconds_.empty()) mine.account *= 1.0 / static_cast<double>(seconds_.size());
  const DryRun plan = dry_run(program);
  mine.predicted_bytes = plan.arena_bytes;
  mine.host_bytes = plan.host_bytes;
  mine.arena_bytes = executor.arena_bytes();
  mine.resident_bytes = executor.resident_bytes();
  mine.planned = traffic_of(program, backend_);
  std::vector<std::int64_t> sent = executor.bytes_sent();
  for (std::int64_t& bytes : sent) bytes /= std::max<std::int64_t>(runs_, 1);
  mine.counted = traffic_of(program, sent);

  RunSummary summary;
  summary.fingerprint = fingerprint_of(program);
  if (!backend_.times_every_run()) {
    summary.looks = looks_.count();
    summary.look_cost = looks_.cost_share();
  }
  for (const std::string& text : world_.gather(to_text(json_of(mine))))
    summary.ranks.push_back(rank_from(parse_json(text, "a rank's summary").value()));
  if (!seconds_.empty()) {
    std::vector<double> sorted = seconds_;
    std::nth_element(sorted.begin(),
                     sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    summary.step_seconds = sorted[sorted.size() / 2];
  }
  return summary;
}

}  // namespace quintet
