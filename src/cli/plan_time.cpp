#include "cli/plan_time.h"

#include <cmath>

#include <fmt/format.h>

#include "base/text.h"

namespace quintet {
namespace {

// Names as a measured run's breakdown has them: a study lays both side by side.
Json breakdown_json(const StepAccount& account) {
  Json books = Json::object();
  for (const AccountPart& part : parts_of(account)) books[part.name] = part.seconds;
  for (std::size_t m = 1; m < kMethodCount; ++m) {
    if (account.hidden[m] <= 0) continue;
    books[fmt::format("hidden {}", name_of(static_cast<Method>(m)))] = account.hidden[m];
  }
  return books;
}

Json layout_json(const LayoutTime& layout) {
  const StepOptions& step = layout.step;
  return {{"layout", layout.name},
          {"step_seconds", layout.step_seconds},
          {"bound_seconds", layout.bound},
          {"device_bytes", layout.device_bytes},
          {"host_bytes", layout.host_bytes},
          {"dp", step.grid.dp},
          {"tp", step.grid.tp},
          {"pp", step.grid.pp},
          {"zero", step.layout.zero},
          {"shard_group", step.layout.shard_group},
          {"schedule", step.layout.schedule},
          {"interleave", step.layout.interleave},
          {"micro_batch", step.batch.micro_batch},
          {"accumulate", step.accumulate},
          {"recompute", step.recompute == Recompute::kFull        ? "full"
                        : step.recompute == Recompute::kSelective ? "selective"
                                                                  : "none"},
          {"offload", step.optimizer.offload},
          {"books", breakdown_json(layout.account)}};
}

void print_layouts(const std::vector<LayoutTime>& layouts, const LayoutTime& best) {
  for (const LayoutTime& each : layouts) {
    const bool slower = each.step_seconds > best.step_seconds;
    fmt::print("{:>10.2f} {:>12}   {}{}\n", 1e3 * each.step_seconds,
               human_bytes(static_cast<double>(each.device_bytes)), each.name,
               slower ? fmt::format("   [{}]", why_slower(best, each)) : "");
  }
}

}  // namespace

void print_time(const Simulation& s, const Machine& machine) {
  fmt::print("\npredicted on {} ({} rank{}, {} played):\n", machine.name, s.world,
             s.world == 1 ? "" : "s", s.ranks.size());
  fmt::print("  {:<34} {:>14.3f} ms\n", "step", 1e3 * s.step_seconds);
  fmt::print("  {:<34} {:>14}\n", "tokens per second",
             with_commas(static_cast<std::int64_t>(s.tokens_per_second())));
  fmt::print("  {:<34} {:>14.2f}\n", "TFLOP/s per device", s.flops_per_device() * 1e-12);
  fmt::print("  {:<34} {:>14.1f}\n", "device-hours per billion tokens",
             s.device_hours_per_billion_tokens());
  fmt::print("\n{:<18} {:>10} {:>7}\n", "time (mean)", "ms", "share");
  for (const AccountPart& part : parts_of(s.account)) {
    if (std::abs(part.seconds) < 1e-9) continue;
    fmt::print("{:<18} {:>10.3f} {:>6.1f}%\n", part.name, part.seconds * 1e3,
               100 * part.seconds / s.account.step);
  }
  fmt::print("{:<18} {:>10.3f} {:>6.1f}%\n", "total", s.account.step * 1e3, 100.0);
  for (std::size_t m = 1; m < kMethodCount; ++m) {
    if (s.account.hidden[m] < 1e-9) continue;
    fmt::print("{:<18} {:>10.3f}   beside computation\n",
               fmt::format("hidden {}", name_of(static_cast<Method>(m))),
               s.account.hidden[m] * 1e3);
  }
  fmt::print("op times: {:.0f}% measured, {:.0f}% interpolated, {:.0f}% from data sheets\n",
             100 * s.provenance.share(Origin::kMeasured),
             100 * s.provenance.share(Origin::kInterpolated),
             100 * s.provenance.share(Origin::kDataSheet));
}

Json time_json(const Simulation& s, const Machine& machine) {
  return {{"machine", machine.name},
          {"step_seconds", s.step_seconds},
          {"tokens_per_second", s.tokens_per_second()},
          {"tflops_per_device", s.flops_per_device() * 1e-12},
          {"device_hours_per_billion_tokens", s.device_hours_per_billion_tokens()},
          {"books", breakdown_json(s.account)},
          {"played_ranks", s.ranks.size()},
          {"share_measured", s.provenance.share(Origin::kMeasured)},
          {"share_interpolated", s.provenance.share(Origin::kInterpolated)},
          {"share_data_sheet", s.provenance.share(Origin::kDataSheet)}};
}

void print_search(const LayoutSearch& search, const Machine& machine, double seconds) {
  fmt::print(
      "{} layouts with {} sequences per step on {}: {} do not fit, {} cannot be among the fastest, "
      "{} simulated; {:.1f} s, {:.0f} layouts per minute\n",
      search.layouts, search.global_batch, machine.name, search.too_large, search.pruned,
      search.simulated, seconds,
      60 * static_cast<double>(search.layouts) / std::max(seconds, 1e-3));
  if (search.fastest.empty()) {
    fmt::print("none of them fits\n");
    return;
  }
  const LayoutTime& best = search.fastest.front();
  fmt::print("\nfastest\n{:>10} {:>12}   layout   [what the best does not pay]\n", "ms per step",
             "memory");
  print_layouts(search.fastest, best);
  fmt::print("\ntime against memory{}\n",
             search.pruned > 0 ? " (of the simulated ones; --no-prune for all)" : "");
  print_layouts(search.front, best);
}

Json search_json(const LayoutSearch& search) {
  Json json = {{"layouts", search.layouts},     {"global_batch", search.global_batch},
               {"too_large", search.too_large}, {"pruned", search.pruned},
               {"simulated", search.simulated}, {"fastest", Json::array()},
               {"front", Json::array()}};
  for (const LayoutTime& each : search.fastest) {
    json["fastest"].push_back(layout_json(each));
    json["fastest"].back()["why_slower"] =
        &each == &search.fastest.front() ? std::string() : why_slower(search.fastest.front(), each);
  }
  for (const LayoutTime& each : search.front) json["front"].push_back(layout_json(each));
  return json;
}

}  // namespace quintet
