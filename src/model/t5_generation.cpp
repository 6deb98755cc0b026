#include "model/t5_generation.h"

#include "model/t5_emitter.h"

namespace quintet {
namespace {

// One rank, one piece of the pipeline, no gradients, no dropout.
struct Setting {
  T5Config config;
  BatchShape batch;
  ModelOptions options;
  StageCut cut;

  Setting(const T5Config& model, std::int64_t rows, const GenerationShape& shape, DType dtype)
      : config(model),
        batch{rows, shape.source, 1, true, false},
        cut(cut_into_stages(model, 1, 1, 1).value()) {
    config.dropout = 0;
    options.dtype = options.grad_dtype = dtype;
  }
};

class GenerationEmitter : private T5Emitter {
 public:
  GenerationEmitter(Program& program, const Setting& setting, const GenerationShape& shape)
      : T5Emitter(program, setting.config, setting.batch, setting.options, {0}, setting.cut),
        generation_(shape) {}

  void emit_encoder_program() {
    StepIo& io = program_.io;
    io.source_ids =
        add_io_tensor("source_ids", {shape_.micro_batch, shape_.source}, DType::kI32, true);
    io.source_lengths = add_io_tensor("source_lengths", {shape_.micro_batch}, DType::kI32, true);
    begin("embedding", {vocabulary_weight("shared.weight", 1.0)}, 0);
    const TensorId memory = emit_encoder(embed(weights_[0], io.source_ids, "encoder"));
    for (std::int64_t i = 0; i < config_.decoder_layers; ++i) {
      begin(fmt::format("decoder.{}.cross", i), {cross_groups(i)[1]}, 0);
      program_.results.push_back(linear(memory, weights_[0], memory_name(i)));
    }
    without_gradients();
  }

  void emit_decoder_program() {
    StepIo& io = program_.io;
    const std::int64_t rows = shape_.micro_batch;
    io.target_ids = add_io_tensor("target_ids", {rows, 1}, DType::kI32, true);
    io.source_lengths = add_io_tensor("source_lengths", {rows}, DType::kI32, true);
    position_ = add_io_tensor(kPositionName, {1}, DType::kI32, false);
    if (generation_.beams > 1)
      rows_ = add_io_tensor(kRowsName, {rows, generation_.tokens}, DType::kI32, false);
    begin("embedding", {vocabulary_weight("shared.weight", 1.0)}, 0);
    const TensorId table = weights_[0];
    TensorId y = embed(table, io.target_ids, "decoder");
    const TensorId bias = bias_table("decoder", 0);
    for (std::int64_t i = 0; i < config_.decoder_layers; ++i) y = emit_layer(y, bias, i);
    emit_next_words(y, table);
    without_gradients();
  }

 private:
  std::string layer_prefix(std::int64_t layer) const {
    return fmt::format("decoder.block.{}.layer", layer);
  }
  // Of the cross-attention: q, (k, v), o.
  std::vector<WeightGroup> cross_groups(std::int64_t layer) const {
    return attention_groups(layer_prefix(layer) + ".1.EncDecAttention", true);
  }
  TensorId add_cache(const std::string& name, std::int64_t length) {
    return program_.add_tensor({name, Shape{shape_.micro_batch, length, 2 * config_.inner()},
                                options_.dtype, Storage::kCache});
  }

  TensorId emit_layer(TensorId y, TensorId bias, std::int64_t i) {
    const std::string hf = layer_prefix(i), name = fmt::format("decoder.{}", i);
    const std::vector<WeightGroup> cross = cross_groups(i);
    std::vector<WeightGroup> groups = {norm_weight(hf + ".0.layer_norm.weight"),
                                       norm_weight(hf + ".1.layer_norm.weight"),
                                       norm_weight(hf + ".2.layer_norm.weight")};
    append(groups, attention_groups(hf + ".0.SelfAttention", false));
    append(groups, {cross[0], cross[2]});
    append(groups, feed_forward_groups(hf + ".2.DenseReluDense"));
    begin(name, std::move(groups), 0);
    const std::vector<TensorId> w = weights_;

    const TensorId qkv = linear(norm(y, w[0], name + ".attn_norm"), w[3], name + ".qkv");
    const TensorId cache = add_cache(name + ".cache", generation_.tokens);
    const TensorId a =
        b_.emit(name + ".attn", OpKind::kCachedAttention,
                CachedAttentionAttrs{static_cast<std::int32_t>(config_.num_heads),
                                     static_cast<std::int32_t>(config_.d_kv),
                                     static_cast<std::int32_t>(config_.relative_buckets),
                                     static_cast<std::int32_t>(config_.relative_max_distance)},
                {qkv, cache, bias, position_, rows_}, {kCreate, cache})[0];
    y = project_back(a, w[4], y, name + ".attn_out");

    const TensorId q = linear(norm(y, w[1], name + ".cross_norm"), w[5], name + ".cross_q");
    const TensorId memory = add_cache(memory_name(i), shape_.source);
    y = project_back(attend(q, memory, kNone, false, false, true, name + ".cross_attn"), w[6], y,
                     name + ".cross_out");
    return feed_forward(y, 1, w[2], w[7], w[8], name);
  }

  void emit_next_words(TensorId y, TensorId table) {
    std::vector<WeightGroup> groups = {norm_weight("decoder.final_layer_norm.weight")};
    if (!config_.tied_head) groups.push_back(vocabulary_weight("lm_head.weight", 1.0));
    begin("head", std::move(groups), 0);
    const TensorId logits = linear(norm(y, weights_[0], "decoder.out"),
                                   config_.tied_head ? table : weights_[1], "logits");
    const std::int64_t rows = shape_.micro_batch, count = generation_.candidates;
    const TensorId words = add_io_tensor(kWordsName, {rows, count}, DType::kI32, false);
    const TensorId values = add_io_tensor(kLogProbabilitiesName, {rows, count}, DType::kF32, false);
    const double scale =
        config_.tied_head ? 1 / std::sqrt(static_cast<double>(config_.d_model)) : 1;
    b_.emit("next", OpKind::kTopLogits,
            TopLogitsAttrs{generation_.candidates, static_cast<float>(scale)}, {logits},
            {words, values});
  }

  const GenerationShape& generation_;
  TensorId position_ = kNone, rows_ = kNone;
};

}  // namespace

std::string memory_name(std::int64_t layer) {
  return fmt::format("decoder.{}.memory", layer);
}

Program emit_t5_encoder(const T5Config& config, const GenerationShape& shape, DType dtype) {
  Program program;
  const Setting setting(config, shape.sequences, shape, dtype);
  GenerationEmitter(program, setting, shape).emit_encoder_program();
  return program;
}

Program emit_t5_decoder_step(const T5Config& config, const GenerationShape& shape, DType dtype) {
  Program program;
  const Setting setting(config, shape.rows(), shape, dtype);
  GenerationEmitter(program, setting, shape).emit_decoder_program();
  return program;
}

}  // namespace quintet
