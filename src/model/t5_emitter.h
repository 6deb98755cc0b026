// T5 in terms of ops: weights grouped into units, and the pieces that layers are made of. Training
// (t5.cpp) and generation (t5_generation.cpp) put them together.
//
// Shapes in the comments: b sequences, s source tokens, t target tokens, d = d_model, A = heads *
// d_kv, f = d_ff, V = vocabulary; A', f', V' are this rank's part. A hidden state is [b, s, d], or
// under tensor parallelism [b s / tp, d]: this rank's tokens.

#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/philox.h"
#include "model/t5.h"
#include "model/width.h"
#include "program/builder.h"
#include "program/ops/attention.h"
#include "program/ops/embedding.h"

namespace quintet {

// Weights that one op reads as one matrix: they lie side by side, their rows follow each other.
using WeightGroup = std::vector<Weight>;

// Elements to which a group's start is aligned, so that kernels may use 16-byte accesses on bf16.
// The models' own sizes are multiples of it; odd ones leave gaps, which stay zero.
inline constexpr std::int64_t kGroupAlignment = 8;

inline std::int64_t aligned_up(std::int64_t size) {
  return (size + kGroupAlignment - 1) / kGroupAlignment * kGroupAlignment;
}

// Adds a unit and returns one view for each group.
inline std::vector<TensorId> add_unit(Program& program, const std::string& name,
                                      std::vector<WeightGroup> groups, std::int32_t chunk,
                                      const ModelOptions& options) {
  Unit unit;
  unit.name = name;
  unit.chunk = chunk;
  struct Span {
    std::int64_t offset;
    Shape shape;
    std::string name;
  };
  std::vector<Span> spans;
  for (WeightGroup& group : groups) {
    unit.size = aligned_up(unit.size);
    const bool vector = group.front().shape.rank() == 1;
    Span span{unit.size, {}, group.front().name};
    std::int64_t rows = 0;
    const std::int64_t cols = group.front().cols;
    for (Weight& weight : group) {
      weight.offset = unit.size;
      unit.size += weight.size();
      rows += weight.stored_rows;
      unit.weights.push_back(std::move(weight));
    }
    span.shape = vector ? Shape{cols} : Shape{rows, cols};
    if (group.size() > 1) span.name += fmt::format("(+{})", group.size() - 1);
    spans.push_back(std::move(span));
  }
  unit.size = aligned_up(unit.size);

  std::vector<TensorId> views;
  if (unit.size > 0) {
    Tensor params{name + ".params", Shape{unit.size}, options.dtype, Storage::kParameter};
    Tensor grads{name + ".grads", Shape{unit.size}, options.grad_dtype, Storage::kGradient};
    unit.params = program.add_tensor(std::move(params));
    unit.grads = program.add_tensor(std::move(grads));
    for (const Span& span : spans) {
      const TensorId view = program.add_view(span.name, unit.params,
                                             span.offset * size_of(options.dtype), span.shape);
      const TensorId grad = program.add_view("d." + span.name, unit.grads,
                                             span.offset * size_of(options.grad_dtype), span.shape);
      program.tensor(view).grad = grad;
      views.push_back(view);
    }
  }
  program.units.push_back(std::move(unit));
  return views;
}

class T5Emitter {
 public:
  T5Emitter(Program& program, const T5Config& config, const BatchShape& shape,
            const ModelOptions& options, const std::vector<std::int32_t>& tensor_group,
            const StageCut& cut)
      : program_(program),
        b_(program),
        config_(config),
        width_(config),
        shape_(shape),
        options_(options),
        cut_(cut),
        dropout_(options.gradients ? config.dropout : 0),
        tp_(program.place.tp_size),
        tp_rank_(program.place.tp),
        tp_group_(program.group_of("tp", tensor_group)) {}

  void emit() {
    add_io();
    begin("embedding", {vocabulary_weight("shared.weight", 1.0)}, cut_.encoder.front());
    const TensorId table = weights_[0];
    const TensorId x = embed(table, program_.io.source_ids, "encoder");
    const TensorId memory = emit_encoder(x);
    begin("decoder.embedding", {}, cut_.decoder.front());
    TensorId y = embed(table, program_.io.target_ids, "decoder");
    y = emit_decoder(y, memory);
    emit_head(y, table);
    if (!options_.gradients) without_gradients();
  }

 protected:
  // Starts a unit: ops emitted from here on belong to it; its weights' views are in weights_.
  void begin(const std::string& name, std::vector<WeightGroup> groups, std::int32_t chunk) {
    weights_ = add_unit(program_, name, std::move(groups), chunk, options_);
    b_.tag = Tag{.phase = Phase::kForward,
                 .method = Method::kCompute,
                 .unit = static_cast<std::int16_t>(program_.units.size() - 1),
                 .micro_batch = 0};
  }

  TensorId add_io_tensor(const char* name, Shape shape, DType dtype, bool per_micro_batch) {
    Tensor tensor{name, shape, dtype, Storage::kIo};
    tensor.per_micro_batch = per_micro_batch;
    return program_.add_tensor(std::move(tensor));
  }

  void add_io() {
    const auto [batch, source, target, padded, packed] = shape_;
    StepIo& io = program_.io;
    io.source_ids = add_io_tensor("source_ids", {batch, source}, DType::kI32, true);
    if (padded) io.source_lengths = add_io_tensor("source_lengths", {batch}, DType::kI32, true);
    if (packed) {
      io.source_segments = add_io_tensor("source_segments", {batch, source}, DType::kI32, true);
      io.target_segments = add_io_tensor("target_segments", {batch, target}, DType::kI32, true);
    }
    io.target_ids = add_io_tensor("target_ids", {batch, target}, DType::kI32, true);
    io.labels = add_io_tensor("labels", {batch, target}, DType::kI32, true);
    io.step = add_io_tensor("step", {1}, DType::kI64, false);
    io.loss = add_io_tensor("loss", {2}, DType::kF32, false);
    if (!options_.gradients)
      io.token_losses = add_io_tensor("token_losses", {batch, target}, DType::kF32, true);
    // The loss is a mean over the labels of all micro-batches, so they are counted before the
    // first.
    b_.tag = Tag{.phase = Phase::kSetup, .method = Method::kCompute, .unit = -1, .micro_batch = -1};
    label_count_ = b_.emit_one("label_count", OpKind::kCountLabels, NoAttrs{}, {io.labels});
  }

  // --- Weights
  // -------------------------------------------------------------------------------------

  // Not split: every tensor-parallel rank has it.
  static Weight whole(const std::string& name, Shape shape, double init_std) {
    Weight w;
    w.name = name;
    w.shape = shape;
    w.init_std = init_std;
    w.rows = w.stored_rows = shape.rows();
    w.cols = shape.cols();
    return w;
  }
  Weight split_rows(const std::string& name, Shape shape, double init_std) const {
    Weight w = whole(name, shape, init_std);
    w.split = tp_ > 1;
    w.stored_rows = (shape.rows() + tp_ - 1) / tp_;
    w.row0 = std::min(w.stored_rows * tp_rank_, shape.rows());
    w.rows = std::min(w.stored_rows, shape.rows() - w.row0);
    return w;
  }
  Weight split_cols(const std::string& name, Shape shape, double init_std) const {
    Weight w = whole(name, shape, init_std);
    w.split = tp_ > 1;
    w.cols = shape.cols() / tp_;
    w.col0 = w.cols * tp_rank_;
    return w;
  }
  WeightGroup norm_weight(const std::string& name) const {
    return {whole(name, {config_.d_model}, 0)};
  }
  WeightGroup vocabulary_weight(const std::string& name, double init_std) const {
    return {split_rows(name, {config_.vocab_size, config_.d_model}, init_std)};
  }

  // The weights of one attention, as groups: the projections that read the same input are one
  // product.
  std::vector<WeightGroup> attention_groups(const std::string& prefix, bool cross) const {
    const std::int64_t d = config_.d_model, inner = config_.inner();
    const double dd = static_cast<double>(d);
    const Weight q = width_.hidden(split_rows(
        prefix + ".q.weight", {inner, d}, 1 / std::sqrt(dd * static_cast<double>(config_.d_kv))));
    const Weight k = width_.hidden(split_rows(prefix + ".k.weight", {inner, d}, 1 / std::sqrt(dd)));
    const Weight v = width_.hidden(split_rows(prefix + ".v.weight", {inner, d}, 1 / std::sqrt(dd)));
    const Weight o = width_.hidden(
        split_cols(prefix + ".o.weight", {d, inner}, 1 / std::sqrt(static_cast<double>(inner))));
    if (cross) return {{q}, {k, v}, {o}};
    return {{q, k, v}, {o}};
  }
  std::vector<WeightGroup> feed_forward_groups(const std::string& prefix) const {
    const std::int64_t d = config_.d_model, f = config_.d_ff;
    const double in_std = 1 / std::sqrt(static_cast<double>(d));
    const auto in = [&](const char* name) {
      return width_.hidden(split_rows(prefix + name, {f, d}, in_std));
    };
    const Weight out = width_.hidden(
        split_cols(prefix + ".wo.weight", {d, f}, 1 / std::sqrt(static_cast<double>(f))));
    if (!config_.gated) return {{in(".wi.weight")}, {out}};
    return {{in(".wi_0.weight"), in(".wi_1.weight")}, {out}};
  }
  static void append(std::vector<WeightGroup>& to, std::vector<WeightGroup> from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }

  // --- Crossing between "all tokens, part of the width" and "part of the tokens, whole width"
  // --------

  TensorId collective(OpKind kind, TensorId x, Shape shape, const std::string& name) {
    b_.stream = Stream::kTensorComm;
    b_.tag.method = Method::kTensor;
    const TensorId out = b_.emit_one(name, kind,
                                     CollectiveAttrs{.group = tp_group_,
                                                     .group_size = static_cast<std::int32_t>(tp_),
                                                     .reduction = Reduction::kSum,
                                                     .shape = shape},
                                     {x});
    b_.stream = Stream::kCompute;
    b_.tag.method = Method::kCompute;
    return out;
  }
  // This rank's tokens -> all tokens, [b, length, d].
  TensorId gather(TensorId x, std::int64_t length, const std::string& name) {
    if (tp_ == 1) return x;
    return collective(OpKind::kAllGather, x, {shape_.micro_batch, length, config_.d_model},
                      name + ".gathered");
  }
  // Partial sums over all tokens -> sums over this rank's tokens.
  TensorId scatter(TensorId partial, const std::string& name) {
    if (tp_ == 1) return partial;
    const Shape shape = program_.tensor(partial).shape;
    return collective(OpKind::kReduceScatter, partial, {shape.rows() / tp_, shape.cols()},
                      name + ".scattered");
  }

  // --- Layers
  // --------------------------------------------------------------------------------------

  // addend + dropout(value), or value alone; nothing is emitted at rate 0 without an addend. `cols`
  // is the width of the whole, of which value has a part if its rows are all tokens.
  TensorId drop(TensorId value, const std::string& name, std::int64_t cols,
                TensorId addend = kNone) {
    if (dropout_ == 0) {
      return addend == kNone ? value : b_.emit_one(name, OpKind::kAdd, NoAttrs{}, {value, addend});
    }
    const Shape& shape = program_.tensor(value).shape;
    const bool part_of_tokens = tp_ > 1 && shape.cols() == cols;
    DropoutAttrs attrs{.rate = static_cast<float>(dropout_),
                       .seed = options_.seed,
                       .site = stream_of(name),
                       .index = {.row_offset = part_of_tokens ? tp_rank_ * shape.rows() : 0,
                                 .rows = part_of_tokens ? tp_ * shape.rows() : shape.rows(),
                                 .col_offset = shape.cols() == cols ? 0 : tp_rank_ * shape.cols(),
                                 .cols = cols}};
    return b_.emit_one(name, OpKind::kDropout, attrs, {value, program_.io.step, addend});
  }

  TensorId embed(TensorId table, TensorId ids, const std::string& stack) {
    const Weight& weight = program_.units.front().weights.front();
    TensorId x = b_.emit_one(stack + ".embedded", OpKind::kEmbedding, EmbeddingAttrs{weight.row0},
                             {table, ids});
    return drop(scatter(x, stack + ".embedded"), stack + ".dropout", config_.d_model);
  }

  // An operand of products in eight bits, made once for all that read it in a piece of the
  // pipeline.
  const std::vector<TensorId>& quantized(TensorId x, bool transposed) {
    auto& made = quantized_[{x, program_.units.back().chunk}];
    if (made.empty()) {
      made = b_.emit(program_.tensor(x).name, OpKind::kQuantize, QuantizeAttrs{},
                     {x, kNone, largest_of(program_, x, b_.tag.unit)},
                     {kCreate, transposed ? kCreate : kNone, kCreate});
    }
    return made;
  }

  // Those of all weights that a layer multiplies with, made by one op as it begins; in the order in
  // which they are used.
  void quantize_weights(const std::vector<TensorId>& weights, std::size_t first) {
    if (!options_.fp8) return;
    std::vector<TensorId> inputs, outputs;
    for (std::size_t i = first; i < weights.size(); ++i) {
      inputs.insert(inputs.end(), {weights[i], kNone});
      outputs.insert(outputs.end(), {kCreate, kNone, kCreate});
    }
    const auto made = b_.emit(program_.units.back().name, OpKind::kQuantizeWeights, QuantizeAttrs{},
                              std::move(inputs), std::move(outputs));
    auto of_weight = made.begin();
    for (std::size_t i = first; i < weights.size(); ++i) {
      const auto end = of_weight + quantize_weights::kOutputs;
      quantized_[{weights[i], program_.units.back().chunk}] = {of_weight, end};
      of_weight = end;
    }
  }

  // y = x W^T
  TensorId linear(TensorId x, TensorId weight, const std::string& name, TensorId addend = kNone) {
    if (options_.fp8) {
      const auto& a = quantized(x, options_.gradients);
      const auto& b = quantized_.at({weight, program_.units.back().chunk});
      return b_.emit_one(name, OpKind::kMatmul,
                         MatmulAttrs{.transpose_a = false, .transpose_b = true},
                         {a[quantize::kCodes], b[quantize::kCodes], addend, a[quantize::kUnit],
                          b[quantize::kUnit]});
    }
    return b_.emit_one(name, OpKind::kMatmul,
                       MatmulAttrs{.transpose_a = false, .transpose_b = true}, {x, weight, addend});
  }
  // residual + dropout(x W^T): the sum rides along with the product where it can.
  TensorId project_back(TensorId x, TensorId weight, TensorId residual, const std::string& name) {
    if (dropout_ == 0 && tp_ == 1) return linear(x, weight, name, residual);
    const TensorId product = scatter(linear(x, weight, name + ".product"), name);
    return drop(product, name, config_.d_model, residual);
  }

  TensorId norm(TensorId x, TensorId weight, const std::string& name) {
    return b_.emit(name, OpKind::kRmsNorm, RmsNormAttrs{static_cast<float>(config_.norm_epsilon)},
                   {x, weight}, {kCreate, kCreate, largest()})[0];
  }
  // Whether an op should also leave the largest magnitude of what it makes.
  TensorId largest() const { return options_.fp8 ? kCreate : kNone; }

  // bias = kNone: no relative bias (cross-attention). `from_source`, `to_source`: queries, keys are
  // the source's tokens.
  TensorId attend(TensorId q, TensorId kv, TensorId bias, bool causal, bool from_source,
                  bool to_source, const std::string& name) {
    AttentionAttrs attrs;
    attrs.heads = static_cast<std::int32_t>(config_.num_heads / tp_);
    attrs.head_dim = static_cast<std::int32_t>(config_.d_kv);
    attrs.causal = causal;
    if (bias != kNone) {
      attrs.buckets = static_cast<std::int32_t>(config_.relative_buckets);
      attrs.max_distance = static_cast<std::int32_t>(config_.relative_max_distance);
    }
    attrs.global_heads = static_cast<std::int32_t>(config_.num_heads);
    attrs.first_head = static_cast<std::int32_t>(tp_rank_) * attrs.heads;
    attrs.dropout_rate = static_cast<float>(dropout_);
    attrs.dropout_seed = options_.seed;
    attrs.dropout_site = stream_of(name);
    const TensorId step = dropout_ > 0 ? program_.io.step : kNone;
    const StepIo& io = program_.io;
    return b_.emit(name, OpKind::kAttention, attrs,
                   {q, kv, bias, to_source ? io.source_lengths : kNone, step,
                    from_source ? io.source_segments : io.target_segments,
                    to_source ? io.source_segments : io.target_segments},
                   {kCreate, kCreate, largest()})[0];
  }

  TensorId feed_forward(TensorId x, std::int64_t length, TensorId norm_w, TensorId wi, TensorId wo,
                        const std::string& name) {
    const TensorId n = norm(x, norm_w, name + ".ff_norm");
    const TensorId h =
        linear(gather(n, length, name + ".ff_norm"), wi, name + ".ff_in");  // [b, s, 2f']
    TensorId g =
        b_.emit(name + ".ff_act", OpKind::kActivation,  // [b, s, f']
                ActivationAttrs{config_.nonlinearity, config_.gated}, {h}, {kCreate, largest()})[0];
    g = drop(g, name + ".ff_dropout", config_.d_ff);
    return project_back(g, wo, x, name + ".ff_out");
  }

  TensorId self_attention(TensorId x, std::int64_t length, TensorId norm_w, TensorId qkv_w,
                          TensorId o_w, TensorId bias, bool causal, const std::string& name) {
    const TensorId n = norm(x, norm_w, name + ".attn_norm");
    const TensorId qkv =
        linear(gather(n, length, name + ".attn_norm"), qkv_w, name + ".qkv");  // [b, s, 3A']
    const TensorId a =
        attend(qkv, kNone, bias, causal, !causal, !causal, name + ".attn");  // [b, s, A']
    return project_back(a, o_w, x, name + ".attn_out");
  }

  TensorId bias_table(const std::string& stack, std::int32_t chunk) {
    begin(
        stack + ".bias",
        {{split_cols(stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                     {config_.relative_buckets, config_.num_heads}, 1 / std::sqrt(width_.base()))}},
        chunk);
    return weights_[0];
  }

  // Norm weights come first in a unit: they are what tensor-parallel ranks have in common, one run.
  TensorId emit_encoder(TensorId x) {
    const TensorId bias = bias_table("encoder", cut_.encoder.front());
    for (std::int64_t i = 0; i < config_.encoder_layers; ++i) {
      const std::string hf = fmt::format("encoder.block.{}.layer", i);
      const std::string name = fmt::format("encoder.{}", i);
      const bool last = i + 1 == config_.encoder_layers;
      std::vector<WeightGroup> groups = {norm_weight(hf + ".0.layer_norm.weight"),
                                         norm_weight(hf + ".1.layer_norm.weight")};
      if (last) groups.push_back(norm_weight("encoder.final_layer_norm.weight"));
      const std::size_t norms = groups.size();
      append(groups, attention_groups(hf + ".0.SelfAttention", false));
      append(groups, feed_forward_groups(hf + ".1.DenseReluDense"));
      begin(name, std::move(groups), cut_.encoder[static_cast<std::size_t>(i)]);
      const std::vector<TensorId> w = weights_;
      quantize_weights(w, norms);
      x = self_attention(x, shape_.source, w[0], w[norms], w[norms + 1], bias, false, name);
      x = feed_forward(x, shape_.source, w[1], w[norms + 2], w[norms + 3], name);
      if (last) x = drop(norm(x, w[2], "encoder.out"), "encoder.final_dropout", config_.d_model);
    }
    return x;
  }

  TensorId emit_decoder(TensorId y, TensorId memory) {
    const TensorId bias = bias_table("decoder", cut_.decoder.front());
    TensorId gathered = kNone;
    for (std::int64_t i = 0; i < config_.decoder_layers; ++i) {
      const std::string hf = fmt::format("decoder.block.{}.layer", i);
      const std::string name = fmt::format("decoder.{}", i);
      std::vector<WeightGroup> groups = {norm_weight(hf + ".0.layer_norm.weight"),
                                         norm_weight(hf + ".1.layer_norm.weight"),
                                         norm_weight(hf + ".2.layer_norm.weight")};
      append(groups, attention_groups(hf + ".0.SelfAttention", false));
      append(groups, attention_groups(hf + ".1.EncDecAttention", true));
      append(groups, feed_forward_groups(hf + ".2.DenseReluDense"));
      const std::int32_t chunk = cut_.decoder[static_cast<std::size_t>(i)];
      begin(name, std::move(groups), chunk);
      const std::vector<TensorId> w = weights_;
      quantize_weights(w, 3);
      y = self_attention(y, shape_.target, w[0], w[3], w[4], bias, true, name);

      // The encoder's output is gathered once for each piece of the pipeline, not once for each
      // layer; so its gradient is reduced once, too.
      if (i == 0 || cut_.decoder[static_cast<std::size_t>(i - 1)] != chunk) {
        gathered = gather(memory, shape_.source, fmt::format("encoder.out.{}", chunk));
      }
      const TensorId n =
          gather(norm(y, w[1], name + ".cross_norm"), shape_.target, name + ".cross_norm");
      const TensorId q = linear(n, w[5], name + ".cross_q");           // [b, t, A']
      const TensorId kv = linear(gathered, w[6], name + ".cross_kv");  // [b, s, 2A']
      const TensorId a =
          attend(q, kv, kNone, false, false, true, name + ".cross_attn");  // [b, t, A']
      y = project_back(a, w[7], y, name + ".cross_out");
      y = feed_forward(y, shape_.target, w[2], w[8], w[9], name);
    }
    return y;
  }

  void emit_head(TensorId y, TensorId table) {
    const Weight embedding = program_.units.front().weights.front();
    std::vector<WeightGroup> groups = {
        {width_.output(norm_weight("decoder.final_layer_norm.weight").front())}};
    if (!config_.tied_head) {
      const double deviation = 1 / std::sqrt(static_cast<double>(config_.d_model));
      groups.push_back({width_.output(vocabulary_weight("lm_head.weight", deviation).front())});
    }
    begin("head", std::move(groups), cut_.head);
    y = drop(norm(y, weights_[0], "decoder.out"), "decoder.final_dropout", config_.d_model);
    y = gather(y, shape_.target, "decoder.out");
    const TensorId head = config_.tied_head ? table : weights_[1];
    const TensorId d_head = program_.tensor(head).grad;
    LinearCrossEntropyAttrs attrs;
    attrs.chunk = options_.loss_chunk > 0 ? options_.loss_chunk : default_chunk();
    attrs.scale = config_.tied_head
                      ? static_cast<float>(1 / std::sqrt(static_cast<double>(config_.d_model)))
                      : 1;
    attrs.z_loss = static_cast<float>(options_.z_loss);
    attrs.first_word = embedding.row0;
    attrs.words = embedding.rows;
    attrs.all_words = config_.vocab_size;
    attrs.group = tp_group_;
    const StepIo& io = program_.io;
    if (options_.gradients) {
      attrs.smoothing = static_cast<float>(options_.label_smoothing);
      b_.emit("loss", OpKind::kLinearCrossEntropy, attrs,
              {y, head, io.labels, label_count_, io.loss, d_head}, {io.loss, kCreate, d_head});
    } else {
      b_.emit("loss", OpKind::kLinearCrossEntropy, attrs,
              {y, head, io.labels, label_count_, io.loss, kNone},
              {io.loss, kNone, kNone, io.token_losses});
    }
  }

  void without_gradients() {
    for (Unit& unit : program_.units) unit.grads = kNone;
    for (Tensor& tensor : program_.tensors) tensor.grad = kNone;
  }

  // Large enough for an efficient product, small beside the weights; in steps that divide common
  // batches.
  std::int64_t default_chunk() const {
    const std::int64_t tokens = shape_.micro_batch * shape_.target;
    const std::int64_t words = (config_.vocab_size + tp_ - 1) / tp_;
    std::int64_t chunk = options_.logit_bytes / (4 * words);
    if (chunk > 256) chunk = chunk / 256 * 256;
    return std::clamp<std::int64_t>(chunk, 16, std::max<std::int64_t>(tokens, 16));
  }

  Program& program_;
  Builder b_;
  const T5Config& config_;
  const WidthRules width_;
  const BatchShape& shape_;
  const ModelOptions& options_;
  const StageCut& cut_;
  const double dropout_;
  const std::int64_t tp_, tp_rank_;
  const std::int32_t tp_group_;
  std::vector<TensorId> weights_;
  TensorId label_count_ = kNone;
  std::map<std::pair<TensorId, std::int32_t>, std::vector<TensorId>> quantized_;
};

}  // namespace quintet
