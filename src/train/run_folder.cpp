#include "train/run_folder.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>
#include <sstream>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "train/checkpoint.h"

namespace quintet {
namespace {

// What may change from one part of a run to the next; everything else is what is trained.
bool may_change(const std::string& key) {
  static const std::set<std::string> kFree = {
      "batch.micro_batch",  "batch.accumulate",  "batch.global",       "train.steps",
      "train.stop_after",   "train.device",      "train.graph",        "train.threads",
      "train.max_hours",    "train.recompute",   "optimizer.offload",  "model.loss_chunk",
      "data.prefetch",      "train.on_spike",    "train.spike_loss",   "train.spike_norm",
      "train.spike_window", "train.spike_limit", "train.skip_batches", "train.noise_scale",
      "model.weights"};
  return kFree.contains(key) || key.rfind("parallel.", 0) == 0 || key.rfind("output.", 0) == 0 ||
         key.rfind("validate.", 0) == 0;
}

// Of the newest checkpoint that is sound: a damaged one is not what the run goes on from, and what
// it says of the configuration may be the damage.
std::optional<Path> newest_saved_config(const Path& folder) {
  const auto newest = newest_checkpoint(folder);
  if (!newest) return std::nullopt;
  const Path path = newest->folder / "run.toml";
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) return std::nullopt;
  return path;
}

std::string who_am_i() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{} {}\n", host, ::getpid());
}

Error held(const Path& path, const std::string& by) {
  std::istringstream words(by);
  std::string host = "an unknown host", process = "?";
  words >> host >> process;
  return usage_error(
      "{}: another run is writing there (process {} on {}); wait for it, stop it, or choose "
      "another "
      "output.folder",
      path.parent_path().string(), process, host);
}

}  // namespace

RunLock::RunLock(Path path, int descriptor, bool remove)
    : path_(std::move(path)), descriptor_(descriptor), remove_(remove) {}
RunLock::RunLock(RunLock&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      remove_(other.remove_) {}
RunLock::~RunLock() {
  if (descriptor_ < 0) return;
  if (remove_) ::unlink(path_.c_str());
  ::close(descriptor_);
}

Result<RunLock> RunLock::take(const Path& folder) {
  QT_TRY(make_directories(folder));
  const Path path = folder / "lock";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return io_error("{}: cannot open: {}", path.string(), std::strerror(errno));
  RunLock lock(path, file, false);
  const auto contents = read_file(path);
  const std::string by = contents.ok() ? contents.value() : "";
  // A run that was killed keeps its lock until it has been on a core once more, and who restarts it
  // can be faster than that on a busy machine.
  constexpr double kPatience = 2;
  const double began = now();
  bool free = ::flock(file, LOCK_EX | LOCK_NB) == 0;
  while (!free && errno == EWOULDBLOCK && now() - began < kPatience) {
    ::usleep(2000);
    free = ::flock(file, LOCK_EX | LOCK_NB) == 0;
  }
  if (!free) {
    if (errno == EWOULDBLOCK) return held(path, by);
    // No locks here. A file that names a living process is one.
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    std::istringstream words(by);
    std::string owner;
    pid_t process = 0;
    words >> owner >> process;
    const bool dead = process <= 0 || (owner == host && ::kill(process, 0) != 0 && errno == ESRCH);
    if (!dead) return held(path, by);
    lock.remove_ = true;
  }
  const std::string mine = who_am_i();
  if (::ftruncate(file, 0) != 0 ||
      ::pwrite(file, mine.data(), mine.size(), 0) != static_cast<ssize_t>(mine.size()))
    return io_error("{}: write failed: {}", path.string(), std::strerror(errno));
  return lock;
}

std::string config_to_keep(RunConfig config, const StepOptions& options) {
  if (config.batch.ramp.empty()) config.batch.global = options.global_batch();
  config.batch.accumulate = 1;  // follows from it
  config.output.resume_changed = false;
  return config_to_toml(config.fields(), false);
}

Status check_resumed_config(const RunConfig& config, const StepOptions& options) {
  const auto path = newest_saved_config(config.output.folder);
  if (!path) return {};
  QT_ASSIGN(const std::string text, read_file(*path));
  QT_ASSIGN(const ConfigValues saved, parse_config(text, path->string()));
  RunConfig now_config = config, defaults;
  const FieldList fields = now_config.fields(), unset = defaults.fields();
  const auto value_of = [](const Field& field) {
    return std::visit([](const auto* target) { return TomlValue(*target); }, field.target);
  };
  std::vector<std::string> changed;
  for (std::size_t i = 0; i < fields.fields().size(); ++i) {
    const Field& field = fields.fields()[i];
    if (may_change(field.key)) continue;
    // A key younger than the checkpoint was what it is by default.
    const auto old = saved.find(field.key);
    const std::string was =
        to_toml(old == saved.end() ? value_of(unset.fields()[i]) : old->second.value);
    const std::string is = to_toml(value_of(field));
    if (was != is) changed.push_back(fmt::format("{} = {} (was {})", field.key, is, was));
  }
  const auto global = saved.find("batch.global");
  const auto* was =
      global == saved.end() ? nullptr : std::get_if<std::int64_t>(&global->second.value);
  const std::int64_t is = config.batch.ramp.empty() ? options.global_batch() : config.batch.global;
  if (was != nullptr && *was > 0 && *was != is) {
    changed.push_back(
        fmt::format("the global batch = {} (was {}; batch.global = {} keeps it)", is, *was, *was));
  }
  if (changed.empty()) return {};
  if (!config.output.resume_changed) {
    return usage_error(
        "{}: resuming with other settings than those it was saved with: {}. Take them back, or "
        "allow "
        "it with output.resume_changed=true",
        path->string(), join(changed, ", "));
  }
  return {};
}

}  // namespace quintet
