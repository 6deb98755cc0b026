#include "train/starting_weights.h"

#include "base/log.h"
#include "data/tokenizer/model_tokenizer.h"
#include "model/pretrained.h"
#include "train/shared_status.h"

namespace quintet {
namespace {

// Whether the data's ids mean what they meant to the model.
Status check_tokenizer(const RunConfig& config) {
  const auto models = tokenizer_in(config.model.weights);
  if (!models || config.data.kind == "synthetic") return {};
  const auto datas = tokenizer_at(tokenizer_place(config));
  if (!datas.ok()) return {};  // the data's own business
  QT_ASSIGN(const Tokenizer of_model, Tokenizer::open(*models));
  QT_ASSIGN(const Tokenizer of_data, Tokenizer::open(datas.value()));
  if (of_model.digest() == of_data.digest()) return {};
  const std::string difference = vocabulary_difference(of_model.vocabulary(), of_data.vocabulary());
  if (difference.empty()) return {};
  return bad_input(
      "{}: not the tokenizer of model.weights, {}: {}. Use the model's tokenizer for the data",
      datas.value().string(), models->string(), difference);
}

}  // namespace

Status load_starting_weights(const RunConfig& config, const T5Config& model, World& world,
                             ModelState& state) {
  const Path folder = config.model.weights;
  const bool first = world.rank() == 0;
  QT_TRY(agree(world, first ? check_tokenizer(config) : Status()));
  auto opened = open_pretrained(folder, model, first);
  QT_TRY(agree(world, opened.ok() ? Status() : Status(opened.error())));
  TensorFiles& files = opened.value();
  QT_TRY(agree(world, state.load(files)));
  if (first)
    log_info("starting from the weights in {} ({})", folder.string(),
             files.tensors().begin()->second.dtype);
  return {};
}

void say_if_weights_are_not_used(const RunConfig& config) {
  if (!config.model.weights.empty() || !has_weights(config.model.name)) return;
  log_warning(
      "{} has weights; this run takes the model's shape from it and starts from random weights. "
      "model.weights={} starts from them",
      config.model.name, config.model.name);
}

}  // namespace quintet
