#include "train/checkpoint_retention.h"

#include <algorithm>
#include <cmath>

#include "train/checkpoint.h"

namespace quintet {

std::vector<std::int64_t> superfluous(std::vector<Candidate> all, const Retention& retention) {
  if (retention.newest == 0) return {};
  std::sort(all.begin(), all.end(),
            [](const Candidate& a, const Candidate& b) { return a.step < b.step; });
  const auto newest = static_cast<std::size_t>(retention.newest);
  if (all.size() <= newest) return {};
  std::vector<Candidate> best;
  for (const Candidate& c : all)
    if (c.validation && std::isfinite(*c.validation)) best.push_back(c);
  std::sort(best.begin(), best.end(), [](const Candidate& a, const Candidate& b) {
    return *a.validation != *b.validation ? *a.validation < *b.validation : a.step > b.step;
  });
  best.resize(std::min(best.size(), static_cast<std::size_t>(retention.best)));
  std::vector<std::int64_t> steps;
  for (std::size_t i = 0; i + newest < all.size(); ++i) {
    const std::int64_t step = all[i].step;
    const bool marked = retention.every > 0 && step % retention.every == 0;
    const bool good =
        std::any_of(best.begin(), best.end(), [&](const Candidate& c) { return c.step == step; });
    if (!marked && !good) steps.push_back(step);
  }
  return steps;
}

Status remove_superfluous(const Path& run_folder, const Retention& retention, FileStore& files) {
  std::vector<Candidate> all;
  for (const CheckpointInfo& info : list_checkpoints(run_folder)) {
    const auto position = position_of(info);
    all.push_back({info.step, position.ok() ? position.value().validation : std::nullopt});
  }
  for (const std::int64_t step : superfluous(std::move(all), retention)) {
    const Path removed = set_aside_path(run_folder, "removed", step);
    QT_TRY(files.remove_folder(removed));
    QT_TRY(files.rename(checkpoint_at(run_folder, step).folder, removed));
    // Else the disk might know of removed files before it knows of the new name.
    QT_TRY(files.sync_folder(checkpoints_folder(run_folder)));
    QT_TRY(files.remove_folder(removed));
  }
  return {};
}

Status remove_leftovers(const Path& run_folder, FileStore& files) {
  std::vector<Path> found;
  std::error_code failure;
  for (const auto& entry :
       std::filesystem::directory_iterator(checkpoints_folder(run_folder), failure)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("partial-") || name.starts_with("removed-")) found.push_back(entry.path());
  }
  for (const Path& path : found) QT_TRY(files.remove_folder(path));
  return {};
}

}  // namespace quintet
