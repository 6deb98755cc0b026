#include "train/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include <fmt/ranges.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"

namespace quintet {
namespace {

struct CheckpointOptions {
  std::vector<std::string> paths;
  int threads = 0;
  bool json = false;
};

std::int64_t folder_bytes(const Path& folder) {
  std::int64_t bytes = 0;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure))
    bytes += static_cast<std::int64_t>(entry.file_size(failure));
  return bytes;
}

// A checkpoint, or all of a run's, oldest first.
Result<std::vector<Path>> checkpoint_folders(const Path& path) {
  std::error_code failure;
  if (!std::filesystem::is_directory(path, failure))
    return bad_input("{}: no such folder", path.string());
  std::vector<Path> folders;
  for (const CheckpointInfo& info : list_checkpoints(path)) folders.push_back(info.folder);
  if (!folders.empty()) return folders;
  if (!std::filesystem::exists(path / "state.json", failure)) {
    return bad_input(
        "{}: neither a checkpoint nor a run with checkpoints (no state.json, no "
        "checkpoints/step-...)",
        path.string());
  }
  return std::vector{path};
}

// ---- list

Json describe_one(const Path& folder) {
  Json json = {{"folder", folder.string()}, {"bytes", folder_bytes(folder)}};
  const auto opened = Checkpoint::open(folder);
  json["sound"] = opened.ok();
  if (!opened.ok()) {
    json["problem"] = opened.error().message;
    return json;
  }
  const Checkpoint& checkpoint = opened.value();
  json["step"] = checkpoint.position.step;
  json["samples"] = checkpoint.position.samples;
  if (checkpoint.position.validation) json["validation"] = *checkpoint.position.validation;
  json["checksums"] = checkpoint.manifest.has_value();
  if (checkpoint.manifest) json["ranks"] = checkpoint.manifest->ranks;
  return json;
}

Status list_of_run(const CheckpointOptions& options) {
  Json all = Json::array();
  for (const std::string& path : options.paths) {
    QT_ASSIGN(const auto folders, checkpoint_folders(path));
    for (const Path& folder : folders) all.push_back(describe_one(folder));
  }
  if (options.json) {
    fmt::print("{}\n", to_text(all, 2));
    return {};
  }
  fmt::print("{:<16} {:>12} {:>12} {:>12} {:>6}   {}\n", "checkpoint", "samples", "validation",
             "bytes", "ranks", "state");
  for (const Json& one : all) {
    const std::string name = Path(one["folder"].get<std::string>()).filename().string();
    const std::string bytes = human_bytes(number_in(one, "bytes", 0));
    if (!one["sound"].get<bool>()) {
      fmt::print("{:<16} {:>12} {:>12} {:>12} {:>6}   damaged: {}\n", name, "", "", bytes, "",
                 one["problem"].get<std::string>());
      continue;
    }
    fmt::print(
        "{:<16} {:>12} {:>12} {:>12} {:>6}   {}\n", name, integer_in(one, "samples", 0),
        one.contains("validation") ? fmt::format("{:.4f}", number_in(one, "validation", 0)) : "-",
        bytes, one.contains("ranks") ? fmt::format("{}", integer_in(one, "ranks", 0)) : "-",
        one["checksums"].get<bool>() ? "complete" : "complete, old format: no checksums");
  }
  return {};
}

// ---- show

// One number for a tensor: of the checksums of its blocks.
std::string tensor_checksum(const TensorFiles::Tensor& tensor) {
  if (tensor.checksums.empty()) return "-";
  return checksum_text(checksum(std::as_bytes(std::span(tensor.checksums))));
}

Status show_one(const CheckpointOptions& options) {
  QT_ASSIGN(const auto folders, checkpoint_folders(options.paths.front()));
  const Path& folder = folders.back();
  QT_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder));
  Json json = describe_one(folder);
  json["tensors"] = Json::array();
  std::int64_t parameters = 0;
  for (const TensorFiles* files : {&checkpoint.weights, &checkpoint.optimizer}) {
    for (const auto& [name, tensor] : files->tensors()) {
      json["tensors"].push_back({{"name", name},
                                 {"dtype", tensor.dtype},
                                 {"shape", tensor.shape},
                                 {"file", files->files()[tensor.file].path().filename().string()},
                                 {"offset", tensor.offset},
                                 {"bytes", tensor.bytes},
                                 {"checksum", tensor_checksum(tensor)}});
      std::int64_t elements = 1;
      for (const std::int64_t dim : tensor.shape) elements *= dim;
      if (files == &checkpoint.weights) parameters += elements;
    }
  }
  json["parameters"] = parameters;
  if (options.json) {
    fmt::print("{}\n", to_text(json, 2));
    return {};
  }
  fmt::print("{}\nstep {}, next sample {}, {} parameters, {}{}\n\n", folder.string(),
             checkpoint.position.step, checkpoint.position.samples, with_commas(parameters),
             human_bytes(number_in(json, "bytes", 0)),
             checkpoint.manifest ? fmt::format(", written by {} rank{}", checkpoint.manifest->ranks,
                                               checkpoint.manifest->ranks == 1 ? "" : "s")
                                 : ", old format: no checksums");
  fmt::print("{:<16}  {:<5} {:<16} {:>12}  {:<34} {}\n", "checksum", "type", "shape", "bytes",
             "file", "tensor");
  for (const Json& tensor : json["tensors"]) {
    const auto shape = tensor["shape"].get<std::vector<std::int64_t>>();
    fmt::print("{:<16}  {:<5} {:<16} {:>12}  {:<34} {}\n", tensor["checksum"].get<std::string>(),
               tensor["dtype"].get<std::string>(), fmt::format("[{}]", fmt::join(shape, ", ")),
               with_commas(integer_in(tensor, "bytes", 0)), tensor["file"].get<std::string>(),
               tensor["name"].get<std::string>());
  }
  return {};
}

// ---- verify

// All of one checkpoint's bytes, by several threads.
Status verify_one(const Path& folder, int threads, std::int64_t& bytes) {
  QT_ASSIGN(const Checkpoint first, Checkpoint::open(folder));
  std::vector<std::pair<bool, std::string>> tensors;  // of the weights or the optimizer
  std::int64_t all = 0;
  for (const bool weights : {true, false}) {
    for (const auto& [name, tensor] : (weights ? first.weights : first.optimizer).tensors()) {
      tensors.emplace_back(weights, name);
      all += tensor.bytes;
    }
  }
  std::mutex mutex;
  std::size_t next = 0;
  std::int64_t done = 0;
  Status status;
  const bool shows = ::isatty(STDERR_FILENO) == 1;
  const auto work = [&] {
    auto opened = Checkpoint::open(folder);
    std::unique_lock lock(mutex);
    if (!opened.ok()) status = opened.error();
    while (status.ok() && next < tensors.size()) {
      const auto& [weights, name] = tensors[next++];
      TensorFiles& files = weights ? opened.value().weights : opened.value().optimizer;
      lock.unlock();
      const Status read = files.verify(name);
      lock.lock();
      if (!read.ok() && status.ok()) status = read;
      done += files.tensors().at(name).bytes;
      if (shows) {
        fmt::print(stderr, "\r{}: {:3.0f} %", folder.filename().string(),
                   100 * static_cast<double>(done) / static_cast<double>(all));
      }
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int i = 1; i < threads; ++i) pool.emplace_back(work);
    work();
  }
  if (shows) fmt::print(stderr, "\r{:40}\r", "");
  bytes = all;
  return status;
}

Status verify_all(const CheckpointOptions& options) {
  const int threads = options.threads > 0
                          ? options.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Json report = Json::array();
  std::int64_t damaged = 0;
  for (const std::string& path : options.paths) {
    QT_ASSIGN(const auto folders, checkpoint_folders(path));
    for (const Path& folder : folders) {
      const double began = now();
      std::int64_t bytes = 0;
      const Status status = verify_one(folder, threads, bytes);
      const double seconds = now() - began;
      if (!status.ok()) ++damaged;
      Json one = {{"folder", folder.string()},
                  {"whole", status.ok()},
                  {"bytes", bytes},
                  {"seconds", seconds}};
      if (!status.ok()) one["problem"] = status.error().message;
      report.push_back(std::move(one));
      if (options.json) continue;
      if (status.ok()) {
        const bool old = !Checkpoint::open(folder).value().manifest.has_value();
        fmt::print("{}: whole, {} in {:.1f} s{}\n", folder.string(),
                   human_bytes(static_cast<double>(bytes)), seconds,
                   old ? "; old format: readable, but there are no checksums to compare" : "");
      } else {
        fmt::print("{}: DAMAGED: {}\n", folder.string(), status.error().message);
      }
    }
  }
  if (options.json) fmt::print("{}\n", to_text(report, 2));
  if (damaged == 0) return {};
  return bad_input("{} of {} checkpoints {} damaged", damaged, report.size(),
                   damaged == 1 ? "is" : "are");
}

}  // namespace

void add_checkpoint(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("checkpoint", "look at checkpoints, and verify them");
  command->require_subcommand(1);
  auto options = std::make_shared<CheckpointOptions>();
  const auto add = [&](const char* name, const char* what, const char* paths, const char* footer,
                       Status (*run)(const CheckpointOptions&)) {
    CLI::App* sub = command->add_subcommand(name, what);
    sub->add_option("path", options->paths, paths)->required()->type_name("DIR");
    sub->add_flag("--json", options->json, "print JSON");
    sub->footer(footer);
    sub->callback([options, run, &action] { action = [options, run] { return run(*options); }; });
    return sub;
  };
  add("list", "the checkpoints of a run, and whether each is complete", "folders of runs",
      "Example: quintet checkpoint list runs/first", list_of_run);
  add("show", "step, files, tensors and checksums of one",
      "folder of a checkpoint, or of a run: its newest",
      "Example: quintet checkpoint show runs/first/checkpoints/step-00000500", show_one);
  add("verify", "read checkpoints and compare every checksum",
      "folders of checkpoints, or of runs: all of theirs",
      "Exits with 3 if anything is damaged, and names it.\n\n"
      "Example: quintet checkpoint verify runs/first",
      verify_all)
      ->add_option("--threads", options->threads, "0: one per core")
      ->check(CLI::Range(0, 1024));
}

}  // namespace quintet
