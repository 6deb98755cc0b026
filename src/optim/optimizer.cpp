#include "optim/optimizer.h"

#include "base/check.h"
#include "base/index.h"
#include "base/moments.h"
#include "base/philox.h"
#include "optim/decay_table.h"
#include "program/builder.h"
#include "program/shards.h"

namespace quintet {

void OptimizerConfig::list(FieldList& fields) {
  fields.add("name", name, "which optimizer", one_of({"adamw", "adafactor"}));
  fields.add(
      "master", master,
      "how float32 weights are kept beside bf16 ones: whole, or as the 16 bits that bf16 lacks, "
      "which is as exact and takes half",
      one_of({"fp32", "remainder"}));
  fields.add(
      "moments", moments,
      "adamw: how the two moments of a weight are kept: float32 (8 bytes), bf16 (4), or codes "
      "of eight bits with a scale for each 256 of them (2); small ones are rounded at random",
      one_of({"fp32", "bf16", "8bit"}));
  fields.add(
      "offload", offload,
      "share of the optimizer's state that lives in host memory and visits the device for its "
      "update; 0.5: every other unit's",
      between(0, 1));
  fields.add("clip_norm", clip_norm,
             "gradients are scaled down to this global norm; 0: never, and each unit is updated as "
             "soon as its gradient is there, which saves memory",
             at_least(0));
  fields.add("weight_decay", weight_decay, "decoupled weight decay, times the learning rate",
             between(0, 1));
  fields.add("decay_table", decay_table,
             "weights that decay otherwise: \"PATTERN=DECAY\", the first that matches decides; "
             "[\"*layer_norm*=0\", \"*relative_attention_bias*=0\"] leaves norms and biases alone");
  fields.add("ema", ema,
             "decay of a running mean of the weights, kept beside them in float32 and in "
             "checkpoints, e.g. 0.9999; 0: none",
             between(0, 0.99999999));
  fields.add("beta1", beta1, "adamw: decay of the first moment", between(0, 0.99999));
  fields.add("beta2", beta2, "adamw: decay of the second moment", between(0, 0.9999999));
  fields.add("epsilon", epsilon, "adamw: added to the root of the second moment", between(0, 1));
  fields.add("decay_rate", decay_rate, "adafactor: beta2 at step t is 1 - t^decay_rate",
             between(-10, 0));
  fields.add("epsilon1", epsilon1, "adafactor: added to the squared gradient", between(0, 1));
  fields.add("epsilon2", epsilon2, "adafactor: smallest root mean square taken for a weight",
             between(0, 1));
  fields.add("clip_threshold", clip_threshold, "adafactor: largest root mean square of an update",
             between(1e-6, 1e6));
  fields.add("scale_parameter", scale_parameter,
             "adafactor: multiply the learning rate with the weight's root mean square");
}

namespace {

// Elements of state that visit the device together: long enough to copy at full speed, short enough
// for three of them to need little room.
constexpr std::int64_t kOffloadedPiece = std::int64_t{1} << 24;
static_assert(kOffloadedPiece % kMomentBlock == 0);

class UpdateEmitter {
 public:
  UpdateEmitter(Program& program, const OptimizerConfig& config,
                const std::vector<std::int32_t>& world, std::uint64_t seed, bool limited)
      : program_(program),
        b_(program),
        config_(config),
        decay_(DecayTable::create(config.weight_decay, config.decay_table).value()),
        world_(program.group_of("world", world)),
        seed_(seed),
        limited_(limited) {
    b_.tag =
        Tag{.phase = Phase::kUpdate, .method = Method::kCompute, .unit = -1, .micro_batch = -1};
  }

  void emit() {
    StepIo& io = program_.io;
    io.learning_rate = add("learning_rate", Shape{1}, Storage::kIo);
    if (limited_) io.limits = add("limits", Shape{2}, Storage::kIo);
    io.grad_norm = add("grad_norm", Shape{1}, Storage::kIo);
    if (is_unconditional(config_, limited_)) emit_scale_of_one();
    emit_scale();
    for (std::size_t i = 0; i < program_.shards.size(); ++i) {
      Shard& shard = program_.shards[i];
      b_.tag.unit = unit_of(shard);
      shard.master = shard.working;
      TensorId working = kNone;
      if (program_.tensor(shard.working).dtype != DType::kF32) {
        const bool split = config_.master == "remainder";
        QT_CHECK(!split || program_.tensor(shard.working).dtype == DType::kBF16,
                 "remainders of weights that are not bf16");
        shard.master = program_.add_tensor(
            Tensor{shard.name + (split ? ".remainder" : ".master"), Shape{shard.size},
                   split ? DType::kI16 : DType::kF32, Storage::kOptimizer});
        working = shard.working;
      }
      if (config_.ema > 0)
        shard.ema = add(shard.name + ".ema", Shape{shard.size}, Storage::kOptimizer);
      if (config_.name == "adamw") {
        emit_adamw(shard, working);
      } else {
        emit_adafactor(shard, working, sums_[i]);
      }
    }
  }

 private:
  TensorId add(const std::string& name, Shape shape, Storage storage) {
    return program_.add_tensor(Tensor{name, shape, DType::kF32, storage});
  }
  // The working copy is read only where it holds the upper half of the weights.
  TensorId working_input(const Shard& shard) const {
    return program_.tensor(shard.master).dtype == DType::kI16 ? shard.working : kNone;
  }
  // Adds up a tensor over a group of ranks, in place.
  void all_reduce(TensorId t, std::int32_t group) {
    if (group < 0) return;
    b_.stream = Stream::kDataComm;
    b_.tag.method = Method::kData;
    b_.emit("", OpKind::kAllReduce,
            CollectiveAttrs{
                .group = group,
                .group_size = static_cast<std::int32_t>(program_.groups[index(group)].ranks.size()),
                .reduction = Reduction::kSum,
                .shape = {}},
            {t}, {t});
    b_.stream = Stream::kCompute;
    b_.tag.method = Method::kCompute;
  }

  // The squared norm of all gradients: of each piece, one rank counts it.
  void emit_scale() {
    const TensorId total = add("grad_square", Shape{1}, Storage::kActivation);
    if (config_.name == "adafactor") {
      emit_adafactor_sums(total);
    } else {
      emit_squared_norms(total);
    }
    b_.tag.unit = -1;
    all_reduce(total, world_);
    std::vector<TensorId> inputs = {total};
    if (limited_) inputs.insert(inputs.end(), {program_.io.loss, program_.io.limits});
    const TensorId scale = b_.emit("update", OpKind::kUpdateScale,
                                   UpdateScaleAttrs{static_cast<float>(config_.clip_norm)}, inputs,
                                   {program_.io.grad_norm, kCreate})[update_scale::kScale];
    if (scale_ == kNone) scale_ = scale;
  }

  // A factor of one, known from the beginning: that of a norm of zero.
  void emit_scale_of_one() {
    b_.tag.phase = Phase::kSetup;
    const TensorId zero = add("no_squares", Shape{1}, Storage::kActivation);
    b_.emit("", OpKind::kZero, NoAttrs{}, {}, {zero});
    scale_ = b_.emit("unclipped", OpKind::kUpdateScale, UpdateScaleAttrs{}, {zero},
                     {kCreate, kCreate})[update_scale::kScale];
    b_.tag.phase = Phase::kUpdate;
  }

  // Emits what `square_of(i, square)` does for each of `count` squares, and adds them up.
  template <class SquareOf>
  void sum_squares(std::size_t count, TensorId total, const SquareOf& square_of) {
    if (count == 0) {
      b_.emit("", OpKind::kZero, NoAttrs{}, {}, {total});
      return;
    }
    const TensorId squares =
        add("grad_squares", Shape{static_cast<std::int64_t>(count)}, Storage::kActivation);
    for (std::size_t i = 0; i < count; ++i) {
      square_of(i, program_.add_view("grad_squares", squares, 4 * static_cast<std::int64_t>(i),
                                     Shape{1}));
    }
    b_.tag.unit = -1;
    b_.emit("", OpKind::kSum, NoAttrs{}, {squares}, {total});
  }

  void emit_squared_norms(TensorId total) {
    struct Run {
      const Shard* shard;
      std::int64_t begin, end;
    };
    std::vector<Run> runs;
    for (const Shard& shard : program_.shards) {
      bool open = false;
      for (const ShardPiece& piece : shard.pieces) {
        if (!piece.counted) {
          open = false;
        } else if (open) {
          runs.back().end = piece.offset + piece.count;  // gaps between are zero
        } else {
          runs.push_back({&shard, piece.offset, piece.offset + piece.count});
          open = true;
        }
      }
    }
    sum_squares(runs.size(), total, [&](std::size_t i, TensorId square) {
      const auto& [shard, begin, end] = runs[i];
      b_.tag.unit = unit_of(*shard);
      const std::int64_t element = size_of(program_.tensor(shard->grad).dtype);
      const TensorId grad = program_.add_view(shard->name + ".counted", shard->grad,
                                              begin * element, Shape{end - begin});
      b_.emit("", OpKind::kSquaredNorm, NoAttrs{}, {grad}, {square});
    });
  }

  // How a weight is updated otherwise than its neighbours.
  struct Rule {
    float decay = 0, rate_scale = 1;
    bool operator==(const Rule&) const = default;
  };
  Rule rule_of(const ShardPiece& piece) const {
    const Weight& weight = program_.units[index(piece.unit)].weights[index(piece.weight)];
    // Where rates are multiplied with the weight's root mean square, that has a part of what the
    // width asks of the rate, and decay, which is not to depend on the width, would have it, too.
    const bool relative = config_.name == "adafactor" && config_.scale_parameter;
    const double has = relative ? weight.relative_size : 1;
    return {static_cast<float>(decay_.of(weight.name) / has),
            static_cast<float>(weight.rate_scale / has)};
  }
  // A shard in runs of one rule each, none longer than `most`. What lies between two weights is
  // zero and goes with the one before.
  struct RuleRun {
    std::int64_t first = 0, count = 0;
    Rule rule;
    MomentPlace place = {};  // where runs are of one weight each
  };
  std::vector<RuleRun> rule_runs(const Shard& shard, std::int64_t most) const {
    std::vector<RuleRun> whole = {{0, shard.size, {static_cast<float>(config_.weight_decay), 1}}};
    for (std::size_t i = 0; i < shard.pieces.size(); ++i) {
      const ShardPiece& piece = shard.pieces[i];
      const Rule rule = rule_of(piece);
      if (i == 0) whole.back().rule = rule;
      if (rule == whole.back().rule) continue;
      whole.back().count = piece.offset - whole.back().first;
      whole.push_back({piece.offset, shard.size - piece.offset, rule});
    }
    std::vector<RuleRun> runs;
    for (const RuleRun& run : whole) {
      for (std::int64_t at = 0; at < run.count; at += most)
        runs.push_back({run.first + at, std::min(most, run.count - at), run.rule});
    }
    return runs;
  }

  // A shard in runs of one weight each, none longer than `most`; what lies between is left alone.
  std::vector<RuleRun> weight_runs(const Shard& shard, std::int64_t most) const {
    std::vector<RuleRun> runs;
    for (const ShardPiece& piece : shard.pieces) {
      const Weight& weight = weight_of(program_, piece);
      const std::int64_t width = weight.shape.cols();
      for (std::int64_t at = 0; at < piece.count; at += most) {
        runs.push_back({piece.offset + at,
                        std::min(most, piece.count - at),
                        rule_of(piece),
                        {.seed = seed_,
                         .site = stream_of(weight.name + ".moments"),
                         .first = piece.first + at,
                         .cols = weight.cols,
                         .apart = width - weight.cols,
                         .origin = weight.row0 * width + weight.col0}});
      }
    }
    return runs;
  }

  TensorId add_moment(const Shard& shard, const char* suffix) {
    const DType dtype = config_.moments == "fp32"   ? DType::kF32
                        : config_.moments == "bf16" ? DType::kBF16
                                                    : DType::kU8;
    return program_.add_tensor(
        Tensor{shard.name + suffix, Shape{shard.size}, dtype, Storage::kOptimizer});
  }

  void emit_adamw(Shard& shard, TensorId working) {
    AdamWAttrs attrs{static_cast<float>(config_.beta1), static_cast<float>(config_.beta2),
                     static_cast<float>(config_.epsilon), 0, static_cast<float>(config_.ema)};
    const TensorId m = add_moment(shard, ".m"), v = add_moment(shard, ".v");
    shard.state = {m, v};
    if (config_.moments == "8bit") {
      const Shape blocks{moment_blocks(shard.pieces)};
      for (const char* suffix : {".m.scales", ".v.scales"})
        shard.scales.push_back(add(shard.name + suffix, blocks, Storage::kOptimizer));
    }
    std::int64_t block = 0;
    const std::int64_t most = config_.offload > 0 ? kOffloadedPiece : shard.size;
    const bool whole = config_.moments == "fp32";
    for (const auto& [first, count, rule, place] :
         whole ? rule_runs(shard, most) : weight_runs(shard, most)) {
      attrs.weight_decay = rule.decay;
      attrs.rate_scale = rule.rate_scale;
      attrs.place = place;
      const auto piece = [&, begin = first, size = count](TensorId t) {
        if (t == kNone || size == shard.size) return t;
        return program_.add_view(program_.tensor(t).name, t,
                                 begin * size_of(program_.tensor(t).dtype), Shape{size});
      };
      // An updated tensor is the same one in both lists.
      const TensorId master = piece(shard.master), m_piece = piece(m), v_piece = piece(v);
      const TensorId working_piece = piece(working), ema = piece(shard.ema);
      std::vector<TensorId> inputs = {piece(shard.grad),
                                      scale_,
                                      program_.io.learning_rate,
                                      program_.io.step,
                                      master,
                                      m_piece,
                                      v_piece,
                                      working_input(shard) == kNone ? kNone : working_piece,
                                      ema};
      std::vector<TensorId> outputs = {master, m_piece, v_piece, working_piece, ema};
      for (const TensorId scales : shard.scales) {
        const TensorId view = program_.add_view(program_.tensor(scales).name, scales, 4 * block,
                                                Shape{moment_blocks(count)});
        inputs.push_back(view);
        outputs.push_back(view);
      }
      block += moment_blocks(count);
      b_.emit("", OpKind::kAdamW, attrs, std::move(inputs), std::move(outputs));
    }
  }

  // One segment for every weight of the bucket, whether or not this rank has a run of it: the state
  // is laid out alike on all ranks that share it.
  AdafactorAttrs adafactor_attrs(const Shard& shard) const {
    AdafactorAttrs attrs;
    attrs.decay_rate = static_cast<float>(config_.decay_rate);
    attrs.epsilon1 = static_cast<float>(config_.epsilon1);
    attrs.epsilon2 = static_cast<float>(config_.epsilon2);
    attrs.clip_threshold = static_cast<float>(config_.clip_threshold);
    attrs.scale_parameter = config_.scale_parameter;
    attrs.ema = static_cast<float>(config_.ema);
    std::int64_t state_size = 0;
    for (const ShardPiece& whole : shard.whole_pieces) {
      const Weight& weight = program_.units[index(whole.unit)].weights[index(whole.weight)];
      AdafactorSegment segment;
      segment.rows = weight.shape.rows();
      segment.cols = weight.shape.cols();
      segment.factored = weight.shape.rank() >= 2;
      segment.row0 = weight.row0;
      segment.col0 = weight.col0;
      segment.part_rows = weight.rows;
      segment.part_cols = weight.cols;
      segment.counted = weight.split || program_.place.tp == 0;
      segment.in_norm = false;
      const Rule rule = rule_of(whole);
      segment.weight_decay = rule.decay;
      segment.rate_scale = rule.rate_scale;
      segment.state = state_size;
      state_size += segment.state_size();
      for (const ShardPiece& piece : shard.pieces) {
        if (piece.unit != whole.unit || piece.weight != whole.weight) continue;
        segment.begin = piece.offset;
        segment.end = piece.offset + piece.count;
        segment.first = piece.first;
        segment.in_norm = piece.counted;
      }
      attrs.segments.push_back(segment);
    }
    return attrs;
  }

  void emit_adafactor_sums(TensorId total) {
    const std::vector<Shard>& shards = program_.shards;
    sum_squares(shards.size(), total, [&](std::size_t i, TensorId square) {
      b_.tag.unit = unit_of(shards[i]);
      const TensorId sums =
          b_.emit(shards[i].name + ".sums", OpKind::kAdafactorSums, adafactor_attrs(shards[i]),
                  {shards[i].grad}, {kCreate, square})[adafactor_sums::kSums];
      all_reduce(sums, shards[i].group);
      sums_.push_back(sums);
    });
  }

  void emit_adafactor(Shard& shard, TensorId working, TensorId sums) {
    const AdafactorAttrs attrs = adafactor_attrs(shard);
    const AdafactorSegment& last = attrs.segments.back();
    const TensorId state =
        add(shard.name + ".adafactor", Shape{last.state + last.state_size()}, Storage::kOptimizer);
    shard.state = {state};
    const TensorId factors = b_.emit(shard.name, OpKind::kAdafactorMoments, attrs,
                                     {sums, scale_, program_.io.step, state},
                                     {state, kCreate})[adafactor_moments::kFactors];
    const TensorId squares = b_.emit_one(shard.name + ".rms", OpKind::kAdafactorRms, attrs,
                                         {shard.grad, scale_, factors, shard.working});
    all_reduce(squares, shard.group);
    b_.emit("", OpKind::kAdafactorApply, attrs,
            {shard.grad, scale_, program_.io.learning_rate, factors, squares, shard.master,
             working_input(shard), shard.ema},
            {shard.master, working, shard.ema});
  }

  Program& program_;
  Builder b_;
  const OptimizerConfig& config_;
  const DecayTable decay_;
  const std::int32_t world_;
  const std::uint64_t seed_;
  const bool limited_;
  TensorId scale_ = kNone;
  std::vector<TensorId> sums_;  // of Adafactor, by shard
};

}  // namespace

void emit_update(Program& program, const OptimizerConfig& config,
                 const std::vector<std::int32_t>& world, std::uint64_t seed, bool limited) {
  UpdateEmitter(program, config, world, seed, limited).emit();
}

bool is_unconditional(const OptimizerConfig& config, bool limited) {
  return config.clip_norm == 0 && !limited;
}

Status validate(const OptimizerConfig& config) {
  if (config.moments != "fp32" && config.name != "adamw") {
    return usage_error(
        "optimizer.moments = \"{}\" is about AdamW's moments, and optimizer.name is \"{}\", which "
        "keeps few or none; leave it out",
        config.moments, config.name);
  }
  return {};
}

}  // namespace quintet
