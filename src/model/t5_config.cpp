#include "model/t5_config.h"

#include <array>
#include <cmath>
#include <cstdlib>

#include "base/json.h"
#include "base/tensor_files.h"
#include "base/text.h"

namespace quintet {
namespace {

struct Preset {
  std::string_view name;
  std::int64_t vocab, d_model, d_kv, heads, d_ff, layers;
};

// The mT5 family. mt5-7b is a rung of our own between XL and XXL; tiny and mini are for tests, the
// demo and benchmarks on a CPU.
constexpr std::array<Preset, 8> kPresets = {{
    {"tiny", 512, 64, 16, 4, 128, 2},
    {"mini", 4096, 256, 64, 4, 640, 4},
    {"mt5-small", 250112, 512, 64, 6, 1024, 8},
    {"mt5-base", 250112, 768, 64, 12, 2048, 12},
    {"mt5-large", 250112, 1024, 64, 16, 2816, 24},
    {"mt5-xl", 250112, 2048, 64, 32, 5120, 24},
    {"mt5-7b", 250112, 3072, 64, 48, 7680, 24},
    {"mt5-xxl", 250112, 4096, 64, 64, 10240, 24},
}};

// Reads typed fields of one JSON object; remembers the first mistake.
class JsonReader {
 public:
  JsonReader(const Json& object, std::string origin)
      : object_(object), origin_(std::move(origin)) {}

  void integer(const char* key, std::int64_t& target, bool required) {
    const Json* value = find(key, required);
    if (value == nullptr) return;
    if (!value->is_number_integer()) return fail(key, *value, "an integer");
    // A value past the range of int64 is stored unsigned; it could be no size of anything.
    if (value->is_number_unsigned() && value->get<std::uint64_t>() > (1ull << 62)) {
      return fail(key, *value, "a smaller integer");
    }
    target = value->get<std::int64_t>();
  }
  void real(const char* key, double& target) {
    const Json* value = find(key, false);
    if (value == nullptr) return;
    if (!value->is_number()) return fail(key, *value, "a number");
    target = value->get<double>();
  }
  void boolean(const char* key, bool& target) {
    const Json* value = find(key, false);
    if (value == nullptr) return;
    if (!value->is_boolean()) return fail(key, *value, "true or false");
    target = value->get<bool>();
  }
  void text(const char* key, std::string& target, bool required) {
    const Json* value = find(key, required);
    if (value == nullptr) return;
    if (!value->is_string()) return fail(key, *value, "a string");
    target = value->get<std::string>();
  }
  Status status() const {
    return error_.empty() ? Status() : Status(bad_input("{}: {}", origin_, error_));
  }

 private:
  const Json* find(const char* key, bool required) {
    const auto at = object_.find(key);
    if (at != object_.end() && !at->is_null()) return &*at;
    if (required && error_.empty()) error_ = fmt::format("\"{}\" is missing", key);
    return nullptr;
  }
  void fail(const char* key, const Json& value, const char* expected) {
    if (error_.empty())
      error_ = fmt::format("\"{}\" is {}, expected {}", key, to_text(value), expected);
  }

  const Json& object_;
  std::string origin_, error_;
};

}  // namespace

std::int64_t T5Config::parameters() const {
  const std::int64_t attention = 4 * d_model * inner();
  const std::int64_t feed_forward = (gated ? 3 : 2) * d_model * d_ff;
  const std::int64_t encoder_layer = attention + feed_forward + 2 * d_model;
  const std::int64_t decoder_layer = 2 * attention + feed_forward + 3 * d_model;
  return (tied_head ? 1 : 2) * vocab_size * d_model + encoder_layers * encoder_layer +
         decoder_layers * decoder_layer + 2 * d_model + 2 * relative_buckets * num_heads;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

Result<T5Config> preset(std::string_view name) {
  for (const Preset& p : kPresets) {
    if (p.name != name) continue;
    T5Config config;
    config.name = p.name;
    config.vocab_size = p.vocab;
    config.d_model = p.d_model;
    config.d_kv = p.d_kv;
    config.num_heads = p.heads;
    config.d_ff = p.d_ff;
    config.encoder_layers = config.decoder_layers = p.layers;
    return config;
  }
  const auto names = preset_names();
  const std::string near = nearest(name, names);
  return usage_error("model \"{}\": neither a preset ({}) nor a config.json or a folder with one{}",
                     name, join(names, ", "),
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

Result<T5Config> parse_hf_config(std::string_view json, const std::string& origin) {
  QT_ASSIGN(const Json parsed, parse_json(json, origin));
  if (!parsed.is_object()) return bad_input("{}: expected a JSON object", origin);

  T5Config config;
  config.name = origin;
  std::string model_type = "t5", feed_forward = "relu";
  JsonReader reader(parsed, origin);
  reader.text("model_type", model_type, false);
  reader.integer("vocab_size", config.vocab_size, true);
  reader.integer("d_model", config.d_model, true);
  reader.integer("d_kv", config.d_kv, true);
  reader.integer("num_heads", config.num_heads, true);
  reader.integer("d_ff", config.d_ff, true);
  reader.integer("num_layers", config.encoder_layers, true);
  config.decoder_layers = config.encoder_layers;
  reader.integer("num_decoder_layers", config.decoder_layers, false);
  reader.integer("relative_attention_num_buckets", config.relative_buckets, false);
  reader.integer("relative_attention_max_distance", config.relative_max_distance, false);
  reader.real("layer_norm_epsilon", config.norm_epsilon);
  reader.real("dropout_rate", config.dropout);
  reader.text("feed_forward_proj", feed_forward, false);
  config.tied_head =
      model_type == "t5";  // what an absent key means differs between the two families
  reader.boolean("tie_word_embeddings", config.tied_head);
  reader.integer("pad_token_id", config.pad_id, false);
  reader.integer("eos_token_id", config.eos_id, false);
  config.decoder_start_id = config.pad_id;
  reader.integer("decoder_start_token_id", config.decoder_start_id, false);
  QT_TRY(reader.status());

  if (model_type != "t5" && model_type != "mt5") {
    return bad_input("{}: \"model_type\" is \"{}\"; t5 and mt5 can be trained", origin, model_type);
  }
  if (feed_forward == "gated-gelu") {
    config.nonlinearity = Nonlinearity::kGeluTanh;
    config.gated = true;
  } else if (feed_forward == "relu") {
    config.nonlinearity = Nonlinearity::kRelu;
    config.gated = false;
  } else {
    return bad_input("{}: \"feed_forward_proj\" is \"{}\"; gated-gelu and relu can be trained",
                     origin, feed_forward);
  }
  QT_TRY(validate(config));
  return config;
}

std::string to_hf_config(const T5Config& c, const char* dtype) {
  const Json json = {{"architectures",
                      {c.tied_head ? "T5ForConditionalGeneration" : "MT5ForConditionalGeneration"}},
                     {"model_type", c.tied_head ? "t5" : "mt5"},
                     {"vocab_size", c.vocab_size},
                     {"d_model", c.d_model},
                     {"d_kv", c.d_kv},
                     {"num_heads", c.num_heads},
                     {"d_ff", c.d_ff},
                     {"num_layers", c.encoder_layers},
                     {"num_decoder_layers", c.decoder_layers},
                     {"feed_forward_proj", c.gated ? "gated-gelu" : "relu"},
                     {"relative_attention_num_buckets", c.relative_buckets},
                     {"relative_attention_max_distance", c.relative_max_distance},
                     {"layer_norm_epsilon", c.norm_epsilon},
                     {"dropout_rate", c.dropout},
                     {"tie_word_embeddings", c.tied_head},
                     {"pad_token_id", c.pad_id},
                     {"eos_token_id", c.eos_id},
                     {"decoder_start_token_id", c.decoder_start_id},
                     {"torch_dtype", dtype}};
  return to_text(json, 2) + "\n";
}

namespace {

// From version 5 on, transformers says of every model that its head is tied, and does not scale the
// output of mT5's decoder; of T5's, `scale_decoder_outputs` says so. Whether the head is a weight
// of its own, the files tell.
Status settle_head(const Path& folder, std::string_view text, T5Config& config) {
  if (!config.tied_head) return {};
  QT_ASSIGN(const Json json, parse_json(text, config.name));
  const Json scale = json.value("scale_decoder_outputs", Json());
  const Json version = json.value("transformers_version", Json());
  const Json type = json.value("model_type", Json());
  const bool newer = version.is_string() && std::atoi(version.get<std::string>().c_str()) >= 5;
  const bool unscaled = scale.is_boolean() ? !scale.get<bool>() : newer && type == "mt5";
  if (!unscaled) return {};
  std::error_code ignored;
  if (std::filesystem::exists(folder / "model.safetensors", ignored) ||
      std::filesystem::exists(folder / "model.safetensors.index.json", ignored)) {
    QT_ASSIGN(const TensorFiles files, TensorFiles::open(folder, "model"));
    if (files.tensors().contains("lm_head.weight")) {
      config.tied_head = false;
      return {};
    }
  }
  return bad_input(
      "{}: a head that is tied to the embedding without scaling the decoder's output, as "
      "transformers 5 has it, is not there; with \"tie_word_embeddings\": false and a "
      "\"lm_head.weight\" of its own the model can be used",
      config.name);
}

}  // namespace

Result<T5Config> load_model_config(const std::string& name_or_path) {
  const auto names = preset_names();
  if (std::find(names.begin(), names.end(), name_or_path) != names.end())
    return preset(name_or_path);
  std::error_code ignored;
  Path path = name_or_path;
  if (std::filesystem::is_directory(path, ignored)) path /= "config.json";
  if (!std::filesystem::exists(path, ignored) && path.extension() != ".json") {
    return preset(name_or_path);  // says what could be meant
  }
  QT_ASSIGN(const std::string text, read_file(path));
  QT_ASSIGN(T5Config config, parse_hf_config(text, path.string()));
  QT_TRY(settle_head(path.parent_path(), text, config));
  return config;
}

Status validate(const T5Config& c) {
  const auto within = [&](const char* key, std::int64_t value, std::int64_t low,
                          std::int64_t high) -> Status {
    if (value >= low && value <= high) return {};
    return bad_input("{}: {} = {}: expected {} to {}", c.name, key, value, low, high);
  };
  QT_TRY(within("vocab_size", c.vocab_size, 2, 1 << 24));
  QT_TRY(within("d_model", c.d_model, 1, 1 << 17));
  QT_TRY(within("base_width", c.base_width, 0, 1 << 17));
  QT_TRY(within("d_kv", c.d_kv, 1, 1024));
  QT_TRY(within("num_heads", c.num_heads, 1, 1024));
  QT_TRY(within("d_ff", c.d_ff, 1, 1 << 20));
  QT_TRY(within("num_layers", c.encoder_layers, 1, 1024));
  QT_TRY(within("num_decoder_layers", c.decoder_layers, 1, 1024));
  QT_TRY(within("relative_attention_num_buckets", c.relative_buckets, 4, 1024));
  if (c.relative_buckets % 4 != 0) {
    // Half for each sign in the encoder, half of those for single distances.
    return bad_input("{}: relative_attention_num_buckets = {}: expected a multiple of 4", c.name,
                     c.relative_buckets);
  }
  QT_TRY(within("relative_attention_max_distance", c.relative_max_distance,
                c.relative_buckets / 2 + 1, 1 << 20));
  for (const auto& [key, id] : {std::pair{"pad_token_id", c.pad_id},
                                {"eos_token_id", c.eos_id},
                                {"decoder_start_token_id", c.decoder_start_id}}) {
    QT_TRY(within(key, id, 0, c.vocab_size - 1));
  }
  if (!(c.dropout >= 0 && c.dropout < 1)) {
    return bad_input("{}: dropout_rate = {}: expected 0 to below 1", c.name, c.dropout);
  }
  if (!(c.norm_epsilon > 0 && c.norm_epsilon < 1)) {
    return bad_input("{}: layer_norm_epsilon = {}: expected a small positive number", c.name,
                     c.norm_epsilon);
  }
  return {};
}

ForwardFlops forward_flops(const T5Config& config, std::int64_t source, std::int64_t target) {
  const auto h = static_cast<double>(config.d_model), a = static_cast<double>(config.inner());
  const auto f = static_cast<double>(config.d_ff), v = static_cast<double>(config.vocab_size);
  const auto s = static_cast<double>(source), t = static_cast<double>(target);
  const double ff = (config.gated ? 3 : 2) * h * f;
  return {.encoder_layer = 2 * s * (4 * h * a + ff) + 4 * s * s * a,
          .decoder_layer = 2 * t * (4 * h * a + ff) + 4 * t * t * a  // self-attention, feed-forward
                           + 4 * t * h * a + 4 * s * h * a  // cross-attention: q and o, k and v
                           + 4 * t * s * a,
          .head = 2 * t * h * v};
}

double flops_per_sequence(const T5Config& config, std::int64_t source, std::int64_t target) {
  const ForwardFlops forward = forward_flops(config, source, target);
  return 3 * (static_cast<double>(config.encoder_layers) * forward.encoder_layer +
              static_cast<double>(config.decoder_layers) * forward.decoder_layer + forward.head);
}

}  // namespace quintet
