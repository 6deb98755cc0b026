#include "model/t5.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/philox.h"
#include "program/builder.h"
#include "program/ops/attention.h"
#include "program/ops/embedding.h"

// Shapes in the comments: b sequences, s source tokens, t target tokens, d = d_model, A = heads *
// d_kv, f = d_ff, V = vocabulary.

namespace quintet {
namespace {

// Weights that one op reads as one matrix: they lie side by side, their rows follow each other.
using Group = std::vector<Weight>;

// Elements to which a group's start is aligned, so that kernels may use 16-byte accesses on bf16.
// The models' own sizes are multiples of it; odd ones leave gaps, which stay zero.
constexpr std::int64_t kGroupAlignment = 8;

// Adds a unit and returns one view for each group.
std::vector<TensorId> add_unit(Program& program, const std::string& name, std::vector<Group> groups,
                               const ModelOptions& options) {
  Unit unit;
  unit.name = name;
  struct Span {
    std::int64_t offset;
    Shape shape;
    std::string name;
  };
  std::vector<Span> spans;
  for (Group& group : groups) {
    unit.size = (unit.size + kGroupAlignment - 1) / kGroupAlignment * kGroupAlignment;
    Span span{unit.size, group.front().shape, group.front().name};
    std::int64_t rows = 0;
    for (Weight& weight : group) {
      weight.offset = unit.size;
      unit.size += weight.shape.numel();
      rows += weight.shape.rows();
      unit.weights.push_back(std::move(weight));
    }
    if (group.size() > 1) {
      span.shape = Shape{rows, span.shape.cols()};
      span.name += fmt::format("(+{})", group.size() - 1);
    }
    spans.push_back(std::move(span));
  }
  unit.size = (unit.size + kGroupAlignment - 1) / kGroupAlignment * kGroupAlignment;

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
            const ModelOptions& options)
      : program_(program), b_(program), config_(config), shape_(shape), options_(options) {}

  void emit() {
    add_io();
    begin("embedding", {{{"shared.weight", {config_.vocab_size, config_.d_model}, 0, 1.0}}});
    const TensorId table = weights_[0];
    TensorId x = b_.emit_one("encoder.embedded", OpKind::kEmbedding, NoAttrs{},
                             {table, program_.io.source_ids});  // [b, s, d]
    x = drop(x, "encoder.dropout");
    const TensorId memory = emit_encoder(x);  // [b, s, d]

    begin("decoder.embedding", {});
    TensorId y = b_.emit_one("decoder.embedded", OpKind::kEmbedding, NoAttrs{},
                             {table, program_.io.target_ids});  // [b, t, d]
    y = drop(y, "decoder.dropout");
    y = emit_decoder(y, memory);
    emit_head(y, table);
  }

 private:
  // Starts a unit: ops emitted from here on belong to it; its weights' views are in weights_.
  void begin(const std::string& name, std::vector<Group> groups) {
    weights_ = add_unit(program_, name, std::move(groups), options_);
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
    const auto [batch, source, target, padded] = shape_;
    StepIo& io = program_.io;
    io.source_ids = add_io_tensor("source_ids", {batch, source}, DType::kI32, true);
    if (padded) io.source_lengths = add_io_tensor("source_lengths", {batch}, DType::kI32, true);
    io.target_ids = add_io_tensor("target_ids", {batch, target}, DType::kI32, true);
    io.labels = add_io_tensor("labels", {batch, target}, DType::kI32, true);
    io.step = add_io_tensor("step", {1}, DType::kI64, false);
    io.loss = add_io_tensor("loss", {2}, DType::kF32, false);
    // The loss is a mean over the labels of all micro-batches, so they are counted before the
    // first.
    b_.tag = Tag{.phase = Phase::kSetup, .method = Method::kCompute, .unit = -1, .micro_batch = -1};
    label_count_ = b_.emit_one("label_count", OpKind::kCountLabels, NoAttrs{}, {io.labels});
  }

  Group weight(const std::string& name, Shape shape, double init_std) const {
    return {{name, shape, 0, init_std}};
  }
  Group norm_weight(const std::string& name) const { return weight(name, {config_.d_model}, 0); }

  // x + dropout(value), or value alone; nothing is emitted at rate 0 without an addend.
  TensorId drop(TensorId value, const std::string& name, TensorId addend = kNone) {
    if (config_.dropout == 0 && addend == kNone) return value;
    const Shape& shape = program_.tensor(value).shape;
    DropoutAttrs attrs{.rate = static_cast<float>(config_.dropout),
                       .seed = options_.seed,
                       .site = stream_of(name),
                       .index = {.row_offset = 0, .col_offset = 0, .cols = shape.cols()}};
    return b_.emit_one(name, OpKind::kDropout, attrs, {value, program_.io.step, addend});
  }

  // y = x W^T
  TensorId linear(TensorId x, TensorId weight, const std::string& name, TensorId addend = kNone) {
    return b_.emit_one(name, OpKind::kMatmul,
                       MatmulAttrs{.transpose_a = false, .transpose_b = true}, {x, weight, addend});
  }
  // residual + dropout(x W^T): the sum rides along with the product when nothing is dropped.
  TensorId project_back(TensorId x, TensorId weight, TensorId residual, const std::string& name) {
    if (config_.dropout == 0) return linear(x, weight, name, residual);
    return drop(linear(x, weight, name + ".product"), name, residual);
  }

  TensorId norm(TensorId x, TensorId weight, const std::string& name) {
    return b_.emit(name, OpKind::kRmsNorm, RmsNormAttrs{static_cast<float>(config_.norm_epsilon)},
                   {x, weight}, {kCreate, kCreate})[0];
  }

  // bias = kNone: no relative bias (cross-attention).
  TensorId attend(TensorId q, TensorId kv, TensorId bias, bool causal, bool mask_lengths,
                  const std::string& name) {
    AttentionAttrs attrs;
    attrs.heads = static_cast<std::int32_t>(config_.num_heads);
    attrs.head_dim = static_cast<std::int32_t>(config_.d_kv);
    attrs.causal = causal;
    if (bias != kNone) {
      attrs.buckets = static_cast<std::int32_t>(config_.relative_buckets);
      attrs.max_distance = static_cast<std::int32_t>(config_.relative_max_distance);
    }
    attrs.global_heads = attrs.heads;
    attrs.dropout_rate = static_cast<float>(config_.dropout);
    attrs.dropout_seed = options_.seed;
    attrs.dropout_site = stream_of(name);
    const TensorId step = config_.dropout > 0 ? program_.io.step : kNone;
    const TensorId lengths = mask_lengths ? program_.io.source_lengths : kNone;
    return b_.emit(name, OpKind::kAttention, attrs, {q, kv, bias, lengths, step},
                   {kCreate, kCreate})[0];
  }

  // The weights of one attention, as groups: the projections that read the same input are one
  // product.
  std::vector<Group> attention_groups(const std::string& prefix, bool cross) const {
    const std::int64_t d = config_.d_model, inner = config_.inner();
    const double dd = static_cast<double>(d);
    const Weight q{
        prefix + ".q.weight", {inner, d}, 0, 1 / std::sqrt(dd * static_cast<double>(config_.d_kv))};
    const Weight k{prefix + ".k.weight", {inner, d}, 0, 1 / std::sqrt(dd)};
    const Weight v{prefix + ".v.weight", {inner, d}, 0, 1 / std::sqrt(dd)};
    const Weight o{prefix + ".o.weight", {d, inner}, 0, 1 / std::sqrt(static_cast<double>(inner))};
    if (cross) return {{q}, {k, v}, {o}};
    return {{q, k, v}, {o}};
  }
  std::vector<Group> feed_forward_groups(const std::string& prefix) const {
    const std::int64_t d = config_.d_model, f = config_.d_ff;
    const double in_std = 1 / std::sqrt(static_cast<double>(d));
    const Weight out{prefix + ".wo.weight", {d, f}, 0, 1 / std::sqrt(static_cast<double>(f))};
    if (!config_.gated) return {{{prefix + ".wi.weight", {f, d}, 0, in_std}}, {out}};
    return {{{prefix + ".wi_0.weight", {f, d}, 0, in_std},
             {prefix + ".wi_1.weight", {f, d}, 0, in_std}},
            {out}};
  }

  TensorId feed_forward(TensorId x, TensorId norm_w, TensorId wi, TensorId wo,
                        const std::string& name) {
    const TensorId n = norm(x, norm_w, name + ".ff_norm");           // [b, s, d]
    const TensorId h = linear(n, wi, name + ".ff_in");               // [b, s, 2f]
    TensorId g = b_.emit_one(name + ".ff_act", OpKind::kActivation,  // [b, s, f]
                             ActivationAttrs{config_.nonlinearity, config_.gated}, {h});
    g = drop(g, name + ".ff_dropout");
    return project_back(g, wo, x, name + ".ff_out");  // [b, s, d]
  }

  TensorId self_attention(TensorId x, TensorId norm_w, TensorId qkv_w, TensorId o_w, TensorId bias,
                          bool causal, const std::string& name) {
    const TensorId n = norm(x, norm_w, name + ".attn_norm");                       // [b, s, d]
    const TensorId qkv = linear(n, qkv_w, name + ".qkv");                          // [b, s, 3A]
    const TensorId a = attend(qkv, kNone, bias, causal, !causal, name + ".attn");  // [b, s, A]
    return project_back(a, o_w, x, name + ".attn_out");                            // [b, s, d]
  }

  TensorId bias_table(const std::string& stack) {
    begin(stack + ".bias",
          {weight(stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                  {config_.relative_buckets, config_.num_heads},
                  1 / std::sqrt(static_cast<double>(config_.d_model)))});
    return weights_[0];
  }

  static void append(std::vector<Group>& to, std::vector<Group> from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }

  TensorId emit_encoder(TensorId x) {
    const TensorId bias = bias_table("encoder");
    for (std::int64_t i = 0; i < config_.encoder_layers; ++i) {
      const std::string hf = fmt::format("encoder.block.{}.layer", i);
      const std::string name = fmt::format("encoder.{}", i);
      const bool last = i + 1 == config_.encoder_layers;
      std::vector<Group> groups = {norm_weight(hf + ".0.layer_norm.weight")};
      append(groups, attention_groups(hf + ".0.SelfAttention", false));
      groups.push_back(norm_weight(hf + ".1.layer_norm.weight"));
      append(groups, feed_forward_groups(hf + ".1.DenseReluDense"));
      if (last) groups.push_back(norm_weight("encoder.final_layer_norm.weight"));
      begin(name, std::move(groups));
      x = self_attention(x, weights_[0], weights_[1], weights_[2], bias, false, name);
      x = feed_forward(x, weights_[3], weights_[4], weights_[5], name);
      if (last) x = drop(norm(x, weights_[6], "encoder.out"), "encoder.final_dropout");
    }
    return x;
  }

  TensorId emit_decoder(TensorId y, TensorId memory) {
    const TensorId bias = bias_table("decoder");
    for (std::int64_t i = 0; i < config_.decoder_layers; ++i) {
      const std::string hf = fmt::format("decoder.block.{}.layer", i);
      const std::string name = fmt::format("decoder.{}", i);
      std::vector<Group> groups = {norm_weight(hf + ".0.layer_norm.weight")};
      append(groups, attention_groups(hf + ".0.SelfAttention", false));
      groups.push_back(norm_weight(hf + ".1.layer_norm.weight"));
      append(groups, attention_groups(hf + ".1.EncDecAttention", true));
      groups.push_back(norm_weight(hf + ".2.layer_norm.weight"));
      append(groups, feed_forward_groups(hf + ".2.DenseReluDense"));
      begin(name, std::move(groups));
      y = self_attention(y, weights_[0], weights_[1], weights_[2], bias, true, name);

      const TensorId n = norm(y, weights_[3], name + ".cross_norm");               // [b, t, d]
      const TensorId q = linear(n, weights_[4], name + ".cross_q");                // [b, t, A]
      const TensorId kv = linear(memory, weights_[5], name + ".cross_kv");         // [b, s, 2A]
      const TensorId a = attend(q, kv, kNone, false, true, name + ".cross_attn");  // [b, t, A]
      y = project_back(a, weights_[6], y, name + ".cross_out");                    // [b, t, d]
      y = feed_forward(y, weights_[7], weights_[8], weights_[9], name);
    }
    return y;
  }

  void emit_head(TensorId y, TensorId table) {
    std::vector<Group> groups = {norm_weight("decoder.final_layer_norm.weight")};
    if (!config_.tied_head) {
      groups.push_back(weight("lm_head.weight", {config_.vocab_size, config_.d_model},
                              1 / std::sqrt(static_cast<double>(config_.d_model))));
    }
    begin("head", std::move(groups));
    y = drop(norm(y, weights_[0], "decoder.out"), "decoder.final_dropout");
    const TensorId head = config_.tied_head ? table : weights_[1];
    const TensorId d_head = program_.tensor(head).grad;
    LinearCrossEntropyAttrs attrs;
    attrs.chunk = options_.loss_chunk > 0 ? options_.loss_chunk : default_chunk();
    attrs.scale = config_.tied_head
                      ? static_cast<float>(1 / std::sqrt(static_cast<double>(config_.d_model)))
                      : 1;
    attrs.z_loss = static_cast<float>(options_.z_loss);
    const TensorId loss = program_.io.loss;
    b_.emit("loss", OpKind::kLinearCrossEntropy, attrs,
            {y, head, program_.io.labels, label_count_, loss, d_head}, {loss, kCreate, d_head});
  }

  // About 64 MiB of float32 logits: large enough for an efficient product, small beside the
  // weights.
  std::int64_t default_chunk() const {
    const std::int64_t tokens = shape_.micro_batch * shape_.target;
    return std::clamp<std::int64_t>((std::int64_t{64} << 20) / (4 * config_.vocab_size), 16,
                                    std::max<std::int64_t>(tokens, 16));
  }

  Program& program_;
  Builder b_;
  const T5Config& config_;
  const BatchShape& shape_;
  const ModelOptions& options_;
  std::vector<TensorId> weights_;
  TensorId label_count_ = kNone;
};

}  // namespace

Status validate(const BatchShape& shape) {
  for (const auto& [key, value] : {std::pair{"micro-batch", shape.micro_batch},
                                   {"source", shape.source},
                                   {"target", shape.target}}) {
    if (value < 1 || value > (1 << 20)) {
      return usage_error("{} = {}: expected 1 to {}", key, value, 1 << 20);
    }
  }
  return {};
}

Program emit_t5(const T5Config& config, const BatchShape& shape, const ModelOptions& options) {
  Program program;
  T5Emitter(program, config, shape, options).emit();
  return program;
}

}  // namespace quintet
