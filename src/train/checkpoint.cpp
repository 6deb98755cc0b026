#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/checksum.h"
#include "base/file_store.h"
#include "base/index.h"
#include "base/json.h"
#include "base/log.h"
#include "train/shared_status.h"

namespace quintet {
namespace {

constexpr std::string_view kPrefix = "step-";
// Of state.json. From 2 on there is a manifest.
constexpr std::int64_t kFormat = 2;

Status check_file(const Path& path, const CheckpointManifest::File& expected) {
  QT_ASSIGN(const ReadableFile file, ReadableFile::open(path));
  if (file.size() != expected.bytes) {
    return bad_input("{}: has {} bytes, {} were written; damaged", path.string(), file.size(),
                     expected.bytes);
  }
  std::vector<std::byte> head(index(expected.head));
  QT_TRY(file.read_at(0, head));
  if (checksum(head) != expected.checksum) {
    return bad_input("{}: its first {} bytes do not have the checksum {} that was written; damaged",
                     path.string(), expected.head, checksum_text(expected.checksum));
  }
  return {};
}

// The step that a checkpoint's folder says it is of.
Result<Json> state_in(const Path& folder) {
  const Path file = folder / "state.json";
  QT_ASSIGN(const std::string text, read_file(file));
  QT_ASSIGN(Json json, parse_json(text, file.string()));
  const std::int64_t format = integer_in(json, "format", 0);
  if (format < 1 || format > kFormat || integer_in(json, "samples", -1) < 0 ||
      integer_in(json, "step", -1) < 0) {
    return bad_input("{}: not the state of a run", file.string());
  }
  return json;
}

Result<std::optional<CheckpointManifest>> manifest_of(const Path& folder) {
  QT_ASSIGN(const Json state, state_in(folder));
  const Path path = folder / kCheckpointManifest;
  std::error_code failure;
  if (integer_in(state, "format", 0) < 2 && !std::filesystem::exists(path, failure))
    return std::optional<CheckpointManifest>();
  QT_ASSIGN(const std::string text, read_file(path));
  QT_ASSIGN(CheckpointManifest manifest, CheckpointManifest::parse(text, path.string()));
  for (const auto& [name, file] : manifest.files) QT_TRY(check_file(folder / name, file));
  if (!manifest.files.contains("state.json") || manifest.step != integer_in(state, "step", -1)) {
    return bad_input("{}: of step {}, state.json is of step {}", path.string(), manifest.step,
                     integer_in(state, "step", -1));
  }
  return std::optional(std::move(manifest));
}

bool read_numbers(const Json& json, const char* key, std::vector<double>& values) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_array()) return false;
  for (const Json& value : json[key]) {
    if (!value.is_number()) return false;
    values.push_back(value.get<double>());
  }
  return true;
}

// What states without spikes do not have. False where it makes no sense.
bool read_spikes(const Json& json, RunPosition& position) {
  if (json.contains("recent")) {
    RecentSteps& recent = position.recent;
    if (!read_numbers(json["recent"], "losses", recent.losses) ||
        !read_numbers(json["recent"], "norms", recent.norms) ||
        recent.losses.size() != recent.norms.size())
      return false;
  }
  position.spikes = integer_in(json, "spikes", 0);
  if (position.spikes < 0) return false;
  if (!json.contains("skipped")) return true;
  if (!json["skipped"].is_array()) return false;
  for (const Json& entry : json["skipped"]) {
    if (!entry.is_object() || !entry.contains("why") || !entry["why"].is_string()) return false;
    const SkippedSamples skipped{{integer_in(entry, "begin", -1), integer_in(entry, "end", -1)},
                                 integer_in(entry, "step", -1),
                                 entry["why"].get<std::string>()};
    if (skipped.samples.begin < 0 || skipped.samples.end <= skipped.samples.begin ||
        skipped.step < 0)
      return false;
    position.skipped.push_back(skipped);
  }
  return true;
}

// Likewise of the noise scale.
bool read_noise(const Json& json, NoiseAverages& noise) {
  if (!json.contains("noise")) return true;
  if (!json["noise"].is_object()) return false;
  noise = {number_in(json["noise"], "trace", NAN), number_in(json["noise"], "square", NAN),
           number_in(json["noise"], "weight", NAN)};
  return std::isfinite(noise.trace) && std::isfinite(noise.square) && noise.weight >= 0 &&
         noise.weight <= 1;
}

Status check_blocks(TensorFiles& files, const CheckpointManifest& manifest) {
  std::map<std::string, std::vector<std::uint64_t>> sums;
  for (const auto& [name, tensor] : files.tensors()) {
    if (const auto at = manifest.tensors.find(name); at != manifest.tensors.end()) sums.insert(*at);
  }
  return files.check_blocks(manifest.block_bytes, sums);
}

}  // namespace

Path checkpoints_folder(const Path& run_folder) {
  return run_folder / "checkpoints";
}

std::vector<CheckpointInfo> list_checkpoints(const Path& run_folder) {
  std::vector<CheckpointInfo> found;
  std::error_code failure;
  for (const auto& entry :
       std::filesystem::directory_iterator(checkpoints_folder(run_folder), failure)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !entry.is_directory(failure)) continue;
    CheckpointInfo info{entry.path(), 0};
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, info.step);
    if (error == std::errc() && stop == end) found.push_back(std::move(info));
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.step < b.step; });
  return found;
}

std::optional<CheckpointInfo> newest_checkpoint(const Path& run_folder) {
  auto all = list_checkpoints(run_folder);
  std::reverse(all.begin(), all.end());
  for (const CheckpointInfo& info : all)
    if (Checkpoint::open(info).ok()) return info;
  return std::nullopt;
}

CheckpointInfo checkpoint_at(const Path& run_folder, std::int64_t step) {
  return {checkpoints_folder(run_folder) / fmt::format("{}{:08}", kPrefix, step), step};
}

Path set_aside_path(const Path& run_folder, const std::string& why, std::int64_t step) {
  return checkpoints_folder(run_folder) / fmt::format("{}-{:08}", why, step);
}

Result<RunPosition> position_of(const CheckpointInfo& checkpoint) {
  QT_ASSIGN(const Json json, state_in(checkpoint.folder));
  RunPosition position;
  position.step = integer_in(json, "step", -1);
  position.samples = integer_in(json, "samples", -1);
  if (position.step != checkpoint.step) {
    return bad_input("{}: not the state of a run at step {}",
                     (checkpoint.folder / "state.json").string(), checkpoint.step);
  }
  if (const double loss = number_in(json, "validation", NAN); std::isfinite(loss))
    position.validation = loss;
  if (const double best = number_in(json, "best_validation", NAN); std::isfinite(best)) {
    position.best_validation = best;
    position.best_step = integer_in(json, "best_step", 0);
    position.validations_since_best = integer_in(json, "validations_since_best", 0);
  }
  if (!read_spikes(json, position)) {
    return bad_input("{}: what it says of spikes and skipped samples cannot be",
                     (checkpoint.folder / "state.json").string());
  }
  if (!read_noise(json, position.noise)) {
    return bad_input("{}: what it says of the gradient's noise cannot be",
                     (checkpoint.folder / "state.json").string());
  }
  return position;
}

std::string position_to_text(const RunPosition& position) {
  Json json = {{"format", kFormat}, {"step", position.step}, {"samples", position.samples}};
  if (position.validation) json["validation"] = *position.validation;
  if (position.best_validation) {
    json["best_validation"] = *position.best_validation;
    json["best_step"] = position.best_step;
    json["validations_since_best"] = position.validations_since_best;
  }
  if (!position.recent.losses.empty())
    json["recent"] = {{"losses", position.recent.losses}, {"norms", position.recent.norms}};
  if (const NoiseAverages& noise = position.noise; noise.weight > 0)
    json["noise"] = {{"trace", noise.trace}, {"square", noise.square}, {"weight", noise.weight}};
  if (position.spikes > 0) json["spikes"] = position.spikes;
  for (const SkippedSamples& skipped : position.skipped) {
    json["skipped"].push_back({{"begin", skipped.samples.begin},
                               {"end", skipped.samples.end},
                               {"step", skipped.step},
                               {"why", skipped.why}});
  }
  return to_text(json, 2) + "\n";
}

Checkpoint::Checkpoint(CheckpointInfo i, TensorFiles w, TensorFiles o)
    : info(std::move(i)), weights(std::move(w)), optimizer(std::move(o)) {}

Result<Checkpoint> Checkpoint::open(const CheckpointInfo& info) {
  QT_ASSIGN(const RunPosition position, position_of(info));
  QT_ASSIGN(auto manifest, manifest_of(info.folder));
  QT_ASSIGN(TensorFiles weights, TensorFiles::open(info.folder, "model"));
  QT_ASSIGN(TensorFiles optimizer, TensorFiles::open(info.folder, "optimizer"));
  if (manifest) {
    QT_TRY(check_blocks(weights, *manifest));
    QT_TRY(check_blocks(optimizer, *manifest));
  }
  Checkpoint result(info, std::move(weights), std::move(optimizer));
  result.position = position;
  result.manifest = std::move(manifest);
  return result;
}

Result<Checkpoint> Checkpoint::open(const Path& folder) {
  QT_ASSIGN(const Json state, state_in(folder));
  return open(CheckpointInfo{folder, integer_in(state, "step", -1)});
}

Status Checkpoint::use_mean() {
  const std::string suffix = std::string(".") + kEmaSuffix;
  std::vector<std::string> names;
  bool any = false;
  for (const auto& [name, tensor] : optimizer.tensors()) {
    names.push_back(name);
    any = any || name.ends_with(suffix);
  }
  if (!any) {
    return usage_error(
        "{}: its run kept no running mean of the weights; optimizer.ema does, e.g. 0.9999",
        info.folder.string());
  }
  weights = std::move(optimizer);
  optimizer = {};
  for (const std::string& name : names) {
    if (name.ends_with(suffix)) {
      weights.rename(name, name.substr(0, name.size() - suffix.size()));
    } else {
      weights.leave_out(name);
    }
  }
  return {};
}

Status Checkpoint::fits(const ModelState& state) const {
  QT_TRY(state.check(weights));
  return state.check_optimizer(optimizer);
}

Status Checkpoint::load_into(ModelState& state) {
  QT_TRY(state.load(weights));
  return state.load_optimizer(optimizer);
}

Status Checkpoint::verify(const std::function<void(std::int64_t)>& progress) {
  for (TensorFiles* files : {&weights, &optimizer}) {
    for (const auto& [name, tensor] : files->tensors()) {
      QT_TRY(files->verify(name));
      if (progress) progress(tensor.bytes);
    }
  }
  return {};
}

namespace {

struct Attempt {
  Status damaged;  // not ok: another one should be tried
  Status refused;  // not ok: whole, and not of this run
  RunPosition position;
};

Status set_aside(const Path& run_folder, const std::vector<std::int64_t>& damaged) {
  FileStore& files = local_files();
  for (const std::int64_t step : damaged) {
    const Path aside = set_aside_path(run_folder, "damaged", step);
    QT_TRY(files.remove_folder(aside));
    QT_TRY(files.rename(checkpoint_at(run_folder, step).folder, aside));
  }
  return files.sync_folder(checkpoints_folder(run_folder));
}

Attempt attempt(const CheckpointInfo& info, World& world, ModelState& state) {
  Attempt result;
  auto opened = Checkpoint::open(info);
  result.damaged = agree(world, opened.ok() ? Status() : Status(opened.error()));
  if (!result.damaged.ok()) return result;
  Checkpoint& checkpoint = opened.value();
  result.position = checkpoint.position;
  result.refused = agree(world, checkpoint.fits(state));
  if (result.refused.ok()) result.damaged = agree(world, checkpoint.load_into(state));
  return result;
}

}  // namespace

Result<std::optional<CheckpointInfo>> load_newest(const Path& run_folder, World& world,
                                                  ModelState& state, RunPosition& position) {
  // Rank 0 looks, so that all try the same ones in the same order.
  std::string list;
  if (world.rank() == 0) {
    for (const CheckpointInfo& info : list_checkpoints(run_folder))
      list = fmt::format("{} {}", info.step, list);
  }
  list = world.broadcast(list);
  if (list.empty()) return std::optional<CheckpointInfo>();

  std::vector<std::int64_t> damaged;
  std::optional<Error> first;
  for (const char* at = list.data(); at < list.data() + list.size();) {
    std::int64_t step = 0;
    at = std::from_chars(at, list.data() + list.size(), step).ptr + 1;
    const CheckpointInfo info = checkpoint_at(run_folder, step);
    const Attempt tried = attempt(info, world, state);
    QT_TRY(tried.refused);
    if (tried.damaged.ok()) {
      position = tried.position;
      if (damaged.empty()) return std::optional(info);
      QT_TRY(agree(world, world.rank() == 0 ? set_aside(run_folder, damaged) : Status()));
      if (world.rank() == 0) {
        log_warning(
            "FALLING BACK to the checkpoint of step {}: {} newer one{} damaged, set aside "
            "as damaged-... in {}",
            info.step, damaged.size(), damaged.size() == 1 ? " is" : "s are",
            checkpoints_folder(run_folder).string());
      }
      return std::optional(info);
    }
    // What cannot be opened for another reason than damage may be whole: it is for people to say.
    if (tried.damaged.error().code != ErrorCode::kBadInput) return tried.damaged.error();
    if (world.rank() == 0) {
      log_warning("the checkpoint of step {} cannot be used: {}", info.step,
                  tried.damaged.error().message);
    }
    if (!first) first = tried.damaged.error();
    damaged.push_back(info.step);
  }
  return bad_input("{} (and no older checkpoint of this run is whole)", first->message);
}

}  // namespace quintet
