#include "train/export.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include "base/bf16.h"
#include "base/fp16.h"
#include "base/index.h"
#include "base/json.h"
#include "base/log.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "data/tokenizer/model_tokenizer.h"
#include "model/t5_config.h"
#include "train/checkpoint.h"
#include "train/model_state.h"
#include "train/run_config.h"

namespace quintet {
namespace {

Result<Checkpoint> open_checkpoint(const Path& path) {
  std::error_code failure;
  if (!std::filesystem::is_directory(path, failure))
    return bad_input("{}: no such folder", path.string());
  auto all = list_checkpoints(path);
  if (all.empty()) {
    if (!std::filesystem::exists(path / "state.json", failure)) {
      return bad_input(
          "{}: neither a checkpoint nor a run with checkpoints (no state.json, no "
          "checkpoints/step-...)",
          path.string());
    }
    return Checkpoint::open(path);
  }
  for (; all.size() > 1; all.pop_back()) {
    auto opened = Checkpoint::open(all.back());
    if (opened.ok()) return opened;
    log_warning("the checkpoint of step {} cannot be used: {}", all.back().step,
                opened.error().message);
  }
  return Checkpoint::open(all.front());
}

struct Shard {
  std::string name, header;
  std::vector<SafetensorsItem> items;
  std::int64_t bytes = 0;  // of its weights
};

std::vector<Shard> cut_into_shards(const std::vector<Weight>& weights,
                                   const ExportOptions& options) {
  std::vector<Shard> shards(1);
  for (const Weight& weight : weights) {
    SafetensorsItem item{weight.name, options.dtype == "fp32" ? DType::kF32 : DType::kBF16, {}};
    if (options.dtype == "fp16") item.spelled = "F16";
    for (int i = 0; i < weight.shape.rank(); ++i) item.shape.push_back(weight.shape[i]);
    if (!shards.back().items.empty() && shards.back().bytes + item.bytes() > options.shard_bytes)
      shards.emplace_back();
    shards.back().bytes += item.bytes();
    shards.back().items.push_back(std::move(item));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    shards[i].header = safetensors_header(shards[i].items, {{"format", "pt"}});
  }
  return shards;
}

std::string index_of(const std::vector<Shard>& shards, std::int64_t bytes) {
  std::map<std::string, std::string> places;
  for (const Shard& shard : shards)
    for (const SafetensorsItem& item : shard.items) places[item.name] = shard.name;
  Json json = {{"metadata", {{"total_size", bytes}}}, {"weight_map", Json::object()}};
  for (const auto& [name, file] : places) json["weight_map"][name] = file;
  return to_text(json, 2) + "\n";
}

// Values as the file has them. Nothing but half precision can be too small for a weight.
Result<std::vector<std::byte>> stored(std::span<const float> values, const std::string& dtype,
                                      const std::string& name, std::int64_t first) {
  std::vector<std::byte> bytes(values.size() * (dtype == "fp32" ? 4 : 2));
  if (dtype == "fp32") {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = bf16(values[i]).bits;
    if (dtype == "fp16") {
      const fp16 half(values[i]);
      if (!half.is_finite() && std::isfinite(values[i])) {
        return bad_input("element {} of \"{}\" is {}: fp16 ends at 65504; use --dtype bf16",
                         first + static_cast<std::int64_t>(i), name, values[i]);
      }
      bits = half.bits;
    }
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
  return bytes;
}

class Export {
 public:
  Export(const ExportOptions& options, FileStore& files, Checkpoint& checkpoint,
         const std::function<void(std::int64_t, std::int64_t)>& progress)
      : options_(options), files_(files), checkpoint_(checkpoint), progress_(progress) {}

  Result<ExportReport> run() {
    QT_TRY(plan());
    const Path output =
        options_.output.has_filename() ? options_.output : options_.output.parent_path();
    const Path parent = output.has_parent_path() ? output.parent_path() : Path(".");
    const Path partial = parent / (output.filename().string() + ".partial");
    std::error_code failure;
    if (std::filesystem::symlink_status(output, failure).type() !=
        std::filesystem::file_type::not_found) {
      return usage_error("{}: exists; choose another name, or remove it", output.string());
    }
    QT_TRY(files_.make_folder(parent));
    QT_ASSIGN(const std::int64_t room, files_.free_bytes(parent));
    if (room < report_.bytes) {
      return io_error("{}: {} are needed, {} are free", parent.string(),
                      human_bytes(static_cast<double>(report_.bytes)),
                      human_bytes(static_cast<double>(room)));
    }
    QT_TRY(files_.remove_folder(partial));  // of an export that was cut short
    QT_TRY(files_.make_folder(partial));
    Status written = write_all(partial);
    if (written.ok()) written = files_.rename(partial, output);
    if (written.ok()) written = files_.sync_folder(parent);
    if (!written.ok()) {
      (void)files_.remove_folder(partial);  // what went wrong before is what is to be said
      return written.error();
    }
    return std::move(report_);
  }

 private:
  // Everything that is known before the first weight is written.
  Status plan() {
    if (options_.ema) QT_TRY(checkpoint_.use_mean());
    QT_ASSIGN(model_, load_model_config((checkpoint_.info.folder / "config.json").string()));
    const std::vector<Weight> weights = whole_weights(model_);
    shards_ = cut_into_shards(weights, options_);
    std::vector<TensorFiles::Wanted> wanted;
    for (const Shard& shard : shards_) {
      for (const SafetensorsItem& item : shard.items) wanted.push_back({item.name, item.shape});
      report_.weight_files.push_back(shard.name);
      weight_bytes_ += shard.bytes;
      report_.bytes += shard.bytes + static_cast<std::int64_t>(shard.header.size());
    }
    QT_TRY(checkpoint_.weights.expect(wanted));
    if (shards_.size() > 1)
      small_["model.safetensors.index.json"] = index_of(shards_, weight_bytes_);
    const char* dtype = options_.dtype == "bf16"   ? "bfloat16"
                        : options_.dtype == "fp16" ? "float16"
                                                   : "float32";
    small_["config.json"] = to_hf_config(model_, dtype);
    const Json generation = {{"decoder_start_token_id", model_.decoder_start_id},
                             {"eos_token_id", model_.eos_id},
                             {"pad_token_id", model_.pad_id}};
    small_["generation_config.json"] = to_text(generation, 2) + "\n";
    QT_TRY(add_tokenizer());
    for (const auto& [name, text] : small_) report_.bytes += static_cast<std::int64_t>(text.size());
    report_.checkpoint = checkpoint_.info.folder;
    report_.step = checkpoint_.position.step;
    report_.parameters = model_.parameters();
    return {};
  }

  Status add_tokenizer() {
    QT_TRY(find_tokenizer());
    if (!report_.tokenizer) return {};
    QT_ASSIGN(const std::string bytes, read_file(*report_.tokenizer));
    QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::create(bytes, report_.tokenizer->string()));
    if (tokenizer.vocabulary().size() > model_.vocab_size) {
      return bad_input(
          "{}: has {} pieces, the model's vocabulary {}: not the tokenizer it was trained with",
          report_.tokenizer->string(), tokenizer.vocabulary().size(), model_.vocab_size);
    }
    small_.merge(tokenizer_files(tokenizer, bytes));
    return {};
  }

  // The one that was named, or that of the data the run was trained on, if it is still there.
  Status find_tokenizer() {
    if (!options_.tokenizer.empty()) {
      QT_ASSIGN(report_.tokenizer, tokenizer_at(options_.tokenizer));
      return {};
    }
    const auto found = trained_tokenizer(checkpoint_.info.folder);
    if (found.ok()) {
      report_.tokenizer = found.value();
    } else {
      report_.why_no_tokenizer = found.error().message;
    }
    return {};
  }

  Status write_all(const Path& folder) {
    for (const Shard& shard : shards_) QT_TRY(write_shard(folder / shard.name, shard));
    for (const auto& [name, text] : small_) QT_TRY(files_.replace(folder / name, text));
    return files_.sync_folder(folder);
  }

  Status write_shard(const Path& path, const Shard& shard) {
    const auto header = static_cast<std::int64_t>(shard.header.size());
    QT_TRY(files_.create(path, header + shard.bytes));
    QT_ASSIGN(const std::unique_ptr<PlacedFile> file, files_.open(path));
    QT_TRY(file->write_at(0, std::as_bytes(std::span(shard.header))));
    std::int64_t at = header;
    std::vector<float> values;
    for (const SafetensorsItem& item : shard.items) {
      const std::int64_t elements = item.bytes() / size_of(item.dtype);
      constexpr std::int64_t kPiece = kBlockBytes / 4;
      for (std::int64_t first = 0; first < elements; first += kPiece) {
        values.resize(index(std::min(kPiece, elements - first)));
        QT_TRY(checkpoint_.weights.read(item.name, first, values));
        QT_ASSIGN(const auto bytes, stored(values, options_.dtype, item.name, first));
        QT_TRY(file->write_at(at, bytes));
        at += static_cast<std::int64_t>(bytes.size());
        written_ += static_cast<std::int64_t>(bytes.size());
        if (progress_) progress_(written_, weight_bytes_);
      }
    }
    return file->sync();
  }

  const ExportOptions& options_;
  FileStore& files_;
  Checkpoint& checkpoint_;
  const std::function<void(std::int64_t, std::int64_t)>& progress_;
  T5Config model_;
  std::vector<Shard> shards_;
  std::map<std::string, std::string> small_;  // files beside the weights
  std::int64_t weight_bytes_ = 0, written_ = 0;
  ExportReport report_;
};

}  // namespace

Result<ExportReport> export_model(const ExportOptions& options, FileStore& files,
                                  const std::function<void(std::int64_t, std::int64_t)>& progress) {
  QT_ASSIGN(Checkpoint checkpoint, open_checkpoint(options.checkpoint));
  return Export(options, files, checkpoint, progress).run();
}

Result<std::int64_t> parse_size(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},
                                                            {"B", 1},
                                                            {"KB", 1e3},
                                                            {"MB", 1e6},
                                                            {"GB", 1e9},
                                                            {"TB", 1e12},
                                                            {"KiB", 1024},
                                                            {"MiB", 1024 * 1024},
                                                            {"GiB", 1024.0 * 1024 * 1024}};
  double number = 0;
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, number);
  while (at < end && *at == ' ') ++at;
  const std::string_view unit(at, static_cast<std::size_t>(end - at));
  for (const auto& [name, size] : kUnits) {
    const double bytes = number * size;
    if (error == std::errc() && unit == name && bytes >= 1 && bytes < 9e18)
      return static_cast<std::int64_t>(bytes);
  }
  return usage_error("\"{}\": expected a size such as 5GB, 500MB or 1GiB", text);
}

}  // namespace quintet
