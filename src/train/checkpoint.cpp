#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/json.h"

namespace quintet {
namespace {

constexpr const char* kFolder = "checkpoints";
constexpr std::string_view kPrefix = "step-";

std::vector<CheckpointInfo> list_checkpoints(const Path& run_folder) {
  std::vector<CheckpointInfo> found;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(run_folder / kFolder, failure)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kPrefix, 0) != 0 || !entry.is_directory(failure)) continue;
    CheckpointInfo info{entry.path(), 0};
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, info.step);
    if (error == std::errc() && stop == end) found.push_back(std::move(info));
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.step < b.step; });
  return found;
}

}  // namespace

std::optional<CheckpointInfo> newest_checkpoint(const Path& run_folder) {
  const auto all = list_checkpoints(run_folder);
  if (all.empty()) return std::nullopt;
  return all.back();
}

CheckpointInfo checkpoint_at(const Path& run_folder, std::int64_t step) {
  return {run_folder / kFolder / fmt::format("{}{:08}", kPrefix, step), step};
}

Result<RunPosition> position_of(const CheckpointInfo& checkpoint) {
  const Path file = checkpoint.folder / "state.json";
  QT_ASSIGN(const std::string text, read_file(file));
  QT_ASSIGN(const Json json, parse_json(text, file.string()));
  const std::int64_t samples = integer_in(json, "samples", -1);
  if (integer_in(json, "format", 0) != 1 || samples < 0 ||
      integer_in(json, "step", -1) != checkpoint.step) {
    return bad_input("{}: not the state of a run at step {}", file.string(), checkpoint.step);
  }
  return RunPosition{checkpoint.step, samples};
}

namespace {

Status write_descriptions(const Path& folder, const RunPosition& position, const T5Config& model,
                          const std::string& run_toml) {
  QT_TRY(write_file(folder / "config.json", to_hf_config(model)));
  QT_TRY(write_file(folder / "run.toml", run_toml));
  const Json info = {{"format", 1}, {"step", position.step}, {"samples", position.samples}};
  return write_file(folder / "state.json", to_text(info, 2) + "\n");
}

}  // namespace

Status save_checkpoint(const Path& run_folder, const RunPosition& position, const World& world,
                       const ModelState& state, const T5Config& model, const std::string& run_toml,
                       std::int64_t keep) {
  const Path final_folder = checkpoint_at(run_folder, position.step).folder;
  const Path partial = run_folder / kFolder / fmt::format("partial-{:08}", position.step);
  const bool writes = world.rank() == 0;
  std::error_code failure;
  Status prepared;
  if (writes) {
    std::filesystem::remove_all(partial, failure);
    prepared = make_directories(partial);
  }
  // All ranks take part in gathering the values, whatever happens to the files on rank 0.
  const Status weights = state.save(partial / "model.safetensors");
  const Status optimizer = state.save_optimizer(partial / "optimizer.safetensors");
  if (!writes) return {};
  QT_TRY(prepared);
  QT_TRY(weights);
  QT_TRY(optimizer);
  QT_TRY(write_descriptions(partial, position, model, run_toml));
  std::filesystem::remove_all(final_folder, failure);
  std::filesystem::rename(partial, final_folder, failure);
  if (failure)
    return io_error("{}: cannot rename into place: {}", final_folder.string(), failure.message());

  const auto all = list_checkpoints(run_folder);
  for (std::size_t i = 0; keep > 0 && i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    std::filesystem::remove_all(all[i].folder, failure);
  }
  return {};
}

Status load_checkpoint(const CheckpointInfo& checkpoint, ModelState& state) {
  QT_ASSIGN(const Safetensors weights, Safetensors::open(checkpoint.folder / "model.safetensors"));
  QT_ASSIGN(const Safetensors optimizer,
            Safetensors::open(checkpoint.folder / "optimizer.safetensors"));
  QT_TRY(state.load(weights));
  return state.load_optimizer(optimizer);
}

}  // namespace quintet
