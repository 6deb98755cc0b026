#include "optim/optimizer.h"

#include "base/check.h"
#include "program/builder.h"

namespace quintet {

void OptimizerConfig::list(FieldList& fields) {
  fields.add("name", name, "which optimizer", one_of({"adamw", "adafactor"}));
  fields.add("clip_norm", clip_norm, "gradients are scaled down to this global norm; 0: never",
             at_least(0));
  fields.add("weight_decay", weight_decay, "decoupled weight decay, times the learning rate",
             between(0, 1));
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

std::string master_name(const std::string& unit) {
  return unit + ".master";
}

namespace {

class UpdateEmitter {
 public:
  UpdateEmitter(Program& program, const OptimizerConfig& config)
      : program_(program), b_(program), config_(config) {
    b_.tag =
        Tag{.phase = Phase::kUpdate, .method = Method::kCompute, .unit = -1, .micro_batch = -1};
  }

  void emit() {
    StepIo& io = program_.io;
    io.learning_rate = add("learning_rate", Shape{1}, Storage::kIo);
    io.grad_norm = add("grad_norm", Shape{1}, Storage::kIo);
    emit_scale();
    for (std::size_t u = 0; u < program_.units.size(); ++u) {
      if (program_.units[u].params == kNone) continue;
      b_.tag.unit = static_cast<std::int16_t>(u);
      const Unit unit = program_.units[u];
      const TensorId master = master_of(unit);
      const TensorId working = master == unit.params ? kNone : unit.params;
      if (config_.name == "adamw") {
        emit_adamw(unit, master, working);
      } else {
        emit_adafactor(unit, master, working);
      }
    }
  }

 private:
  TensorId add(const std::string& name, Shape shape, Storage storage) {
    return program_.add_tensor(Tensor{name, shape, DType::kF32, storage});
  }

  TensorId master_of(const Unit& unit) {
    if (program_.tensor(unit.params).dtype == DType::kF32) return unit.params;
    return add(master_name(unit.name), Shape{unit.size}, Storage::kOptimizer);
  }

  // The gaps that alignment leaves between groups of weights belong to no op: cleared here, where
  // the norm is about to read the whole.
  void clear_gaps(const Unit& unit) {
    const std::int64_t element = size_of(program_.tensor(unit.grads).dtype);
    std::int64_t end = 0;
    const auto clear = [&](std::int64_t from, std::int64_t to) {
      if (from == to) return;
      const TensorId gap =
          program_.add_view(unit.name + ".gap", unit.grads, from * element, {to - from});
      b_.emit("", OpKind::kZero, NoAttrs{}, {}, {gap});
    };
    for (const Weight& weight : unit.weights) {
      clear(end, weight.offset);
      end = weight.offset + weight.shape.numel();
    }
    clear(end, unit.size);
  }

  void emit_scale() {
    std::int64_t count = 0;
    for (const Unit& unit : program_.units) count += unit.params != kNone ? 1 : 0;
    const TensorId squares = add("grad_squares", Shape{count}, Storage::kActivation);
    std::int64_t slot = 0;
    for (std::size_t u = 0; u < program_.units.size(); ++u) {
      const Unit unit = program_.units[u];
      if (unit.params == kNone) continue;
      b_.tag.unit = static_cast<std::int16_t>(u);
      clear_gaps(unit);
      const TensorId square = program_.add_view(unit.name + ".square", squares, 4 * slot++, {1});
      b_.emit("", OpKind::kSquaredNorm, NoAttrs{}, {unit.grads}, {square});
    }
    b_.tag.unit = -1;
    scale_ = b_.emit("update", OpKind::kUpdateScale,
                     UpdateScaleAttrs{static_cast<float>(config_.clip_norm)}, {squares},
                     {program_.io.grad_norm, kCreate})[update_scale::kScale];
  }

  void emit_adamw(const Unit& unit, TensorId master, TensorId working) {
    const AdamWAttrs attrs{static_cast<float>(config_.beta1), static_cast<float>(config_.beta2),
                           static_cast<float>(config_.epsilon),
                           static_cast<float>(config_.weight_decay)};
    const TensorId m = add(unit.name + ".m", Shape{unit.size}, Storage::kOptimizer);
    const TensorId v = add(unit.name + ".v", Shape{unit.size}, Storage::kOptimizer);
    b_.emit("", OpKind::kAdamW, attrs,
            {unit.grads, scale_, program_.io.learning_rate, program_.io.step, master, m, v},
            {master, m, v, working});
  }

  void emit_adafactor(const Unit& unit, TensorId master, TensorId working) {
    AdafactorAttrs attrs;
    attrs.decay_rate = static_cast<float>(config_.decay_rate);
    attrs.epsilon1 = static_cast<float>(config_.epsilon1);
    attrs.epsilon2 = static_cast<float>(config_.epsilon2);
    attrs.clip_threshold = static_cast<float>(config_.clip_threshold);
    attrs.weight_decay = static_cast<float>(config_.weight_decay);
    attrs.scale_parameter = config_.scale_parameter;
    std::int64_t state_size = 0;
    for (const Weight& weight : unit.weights) {
      AdafactorSegment segment;
      segment.begin = weight.offset;
      segment.end = weight.offset + weight.shape.numel();
      segment.rows = weight.shape.rows();
      segment.cols = weight.shape.cols();
      segment.factored = weight.shape.rank() >= 2;
      segment.state = state_size;
      state_size += segment.state_size();
      attrs.segments.push_back(segment);
    }
    const TensorId state = add(unit.name + ".adafactor", Shape{state_size}, Storage::kOptimizer);
    const TensorId sums =
        b_.emit_one(unit.name + ".sums", OpKind::kAdafactorSums, attrs, {unit.grads, scale_});
    const TensorId factors = b_.emit(unit.name, OpKind::kAdafactorMoments, attrs,
                                     {sums, scale_, program_.io.step, state},
                                     {state, kCreate})[adafactor_moments::kFactors];
    const TensorId squares = b_.emit_one(unit.name + ".rms", OpKind::kAdafactorRms, attrs,
                                         {unit.grads, scale_, factors, master});
    b_.emit("", OpKind::kAdafactorApply, attrs,
            {unit.grads, scale_, program_.io.learning_rate, factors, squares, master},
            {master, working});
  }

  Program& program_;
  Builder b_;
  const OptimizerConfig& config_;
  TensorId scale_ = kNone;
};

}  // namespace

void emit_update(Program& program, const OptimizerConfig& config) {
  UpdateEmitter(program, config).emit();
}

}  // namespace quintet
