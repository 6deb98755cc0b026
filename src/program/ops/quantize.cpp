#include "program/ops/quantize.h"

#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "program/builder.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {

TensorId largest_of(const Program& program, TensorId tensor, std::int32_t unit) {
  const Op* op = program.producer(tensor);
  if (op == nullptr) return kNone;
  const auto chunk = [&](std::int32_t of) { return program.units.at(index(of)).chunk; };
  if (op->tag.unit < 0 || unit < 0 || chunk(op->tag.unit) != chunk(unit)) return kNone;
  // What lies beside the tensor if it is this result of the op.
  const auto beside = [&](int result, int largest) {
    return OpView::slot(op->outputs, result) == tensor ? OpView::slot(op->outputs, largest) : kNone;
  };
  switch (op->kind) {
    case OpKind::kRmsNorm:
      return beside(rms_norm::kY, rms_norm::kLargest);
    case OpKind::kRmsNormBackward:
      return beside(rms_norm_backward::kDx, rms_norm_backward::kLargest);
    case OpKind::kActivation:
      return beside(activation::kY, activation::kLargest);
    case OpKind::kActivationBackward:
      return beside(activation_backward::kDh, activation_backward::kLargest);
    case OpKind::kAttention:
      return beside(attention::kOut, attention::kLargest);
    case OpKind::kAttentionBackward: {
      const TensorId of_q = beside(attention_backward::kDQ, attention_backward::kDQLargest);
      return of_q != kNone ? of_q
                           : beside(attention_backward::kDKv, attention_backward::kDKvLargest);
    }
    default:
      return kNone;
  }
}

void quantize::check_operand(const Shape& shape) {
  QT_CHECK(shape.rows() % kMultiple == 0 && shape.cols() % kMultiple == 0,
           "{} as an operand in eight bits: rows and columns must be multiples of {}", shape.str(),
           kMultiple);
}

std::array<TensorSpec, 3> quantize::operands_of(const Shape& shape, DType format) {
  QT_CHECK(is_fp8(format), "codes in {}", name_of(format));
  return {{{"fp8", shape, format},
           {"fp8t", Shape{shape.cols(), shape.rows()}, format},
           {"fp8_unit", Shape{1}, DType::kF32}}};
}

const quantize::AtSource* quantize::at_source(OpKind kind) {
  static constexpr AtSource kOfNorm{rms_norm::kY, rms_norm::kLargest, rms_norm::kCodes,
                                    rms_norm::kGuess};
  static constexpr AtSource kOfActivation{activation::kY, activation::kLargest, activation::kCodes,
                                          activation::kGuess};
  static constexpr AtSource kOfBackward{activation_backward::kDh, activation_backward::kLargest,
                                        activation_backward::kCodes, activation_backward::kGuess};
  switch (kind) {
    case OpKind::kRmsNorm:
      return &kOfNorm;
    case OpKind::kActivation:
      return &kOfActivation;
    case OpKind::kActivationBackward:
      return &kOfBackward;
    default:
      return nullptr;
  }
}

void quantize::add_codes_at_source(const OpView& v, const Shape& result,
                                   std::vector<TensorSpec>& specs) {
  const AtSource& slots = *at_source(v.op.kind);
  if (std::ssize(v.op.outputs) <= slots.codes) return;
  QT_CHECK(!v.has_out(slots.result) && !v.has_out(slots.largest),
           "codes are there instead of what they are made of");
  check_operand(result);
  const int codes = slots.codes + (v.has_out(slots.codes) ? kCodes : kTransposed);
  const DType format = v.has_out(codes) ? v.out(codes).dtype : DType::kE4M3;
  for (const TensorSpec& spec : operands_of(result, format)) specs.push_back(spec);
  specs.push_back({"guess", Shape{kGuessWords}, DType::kI32});
}

std::int64_t quantize::elements_rounded(const OpView& v) {
  const AtSource* slots = at_source(v.op.kind);
  if (slots == nullptr || !v.has_out(slots->codes + kUnit)) return 0;
  return v.out(slots->codes + (v.has_out(slots->codes) ? kCodes : kTransposed)).shape.numel();
}

int quantize_weights::count(const Op& op) {
  return static_cast<int>(op.inputs.size()) / kInputs;
}

namespace {

// The quantize_weights that made these codes, and of which of its matrices.
std::pair<const Op&, int> maker_of(const Program& program, TensorId codes) {
  const Op* op = program.producer(codes);
  QT_CHECK(op != nullptr && op->kind == OpKind::kQuantizeWeights, "{} is not made of a weight",
           program.tensor(codes).name);
  const auto at = std::find(op->outputs.begin(), op->outputs.end(), codes);
  return {*op, static_cast<int>(at - op->outputs.begin()) / quantize_weights::kOutputs};
}

}  // namespace

TensorId weight_of_codes(const Program& program, TensorId codes) {
  const auto& [op, matrix] = maker_of(program, codes);
  return op.inputs[index(quantize_weights::in(matrix, quantize_weights::kX))];
}

TensorId transposed_weight(Builder& builder, TensorId codes) {
  namespace qw = quantize_weights;
  const Program& program = builder.program();
  const auto maker = maker_of(program, codes);
  const Op forward = maker.first;  // a copy: emitting grows the list
  const int matrix = maker.second;
  const auto unit = [&](int i) { return forward.outputs[index(qw::out(i, quantize::kUnit))]; };
  for (auto op = program.ops.rbegin(); op != program.ops.rend(); ++op) {
    if (op->kind != OpKind::kQuantizeWeights) continue;
    const auto at = std::find(op->inputs.begin(), op->inputs.end(), unit(matrix));
    if (at == op->inputs.end()) continue;
    const int there = static_cast<int>(at - op->inputs.begin()) / qw::kInputs;
    return op->outputs[index(qw::out(there, quantize::kTransposed))];
  }
  // The backward comes to the forward's last weight first, and to the others in turn.
  const int last = qw::count(forward) - 1;
  const int begin = matrix == last ? last : last - 1, end = matrix == last ? last : 0;
  std::vector<TensorId> inputs, outputs;
  for (int i = begin; i >= end; --i) {
    inputs.insert(inputs.end(), {forward.inputs[index(qw::in(i, qw::kX))], unit(i)});
    outputs.insert(outputs.end(), {kNone, kCreate, kNone});
  }
  const auto made = builder.emit("", OpKind::kQuantizeWeights, forward.attrs, std::move(inputs),
                                 std::move(outputs));
  return made[index(qw::out(begin - matrix, quantize::kTransposed))];
}

namespace {

// A matrix of quantize_weights.
void check_weight(const OpView& v, int matrix) {
  namespace qw = quantize_weights;
  const Tensor& x = v.in(qw::in(matrix, qw::kX));
  const bool known = v.has_in(qw::in(matrix, qw::kKnownUnit)),
             codes = v.has_out(qw::out(matrix, quantize::kCodes)),
             transposed = v.has_out(qw::out(matrix, quantize::kTransposed));
  const DType format = v.attrs<QuantizeAttrs>().format;
  if (x.shape.rank() == 1) {
    QT_CHECK(is_float(x.dtype) && x.shape.numel() % qw::kRunMultiple == 0, "a run of {} {}",
             x.shape.numel(), name_of(x.dtype));
    QT_CHECK(!transposed && (known || !codes), "of a run, more than its unit or its codes");
  } else if (x.dtype == format) {
    QT_CHECK(known && !codes, "codes can only be turned");
  } else {
    QT_CHECK(is_float(x.dtype), "codes of {}", name_of(x.dtype));
    quantize::check_operand(x.shape);
  }
}

}  // namespace

const OpDecl kQuantizeDecl = {
    .kind = OpKind::kQuantize,
    .name = "quantize",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& x = v.in(quantize::kX);
      QT_CHECK(is_float(x.dtype), "codes of {}", name_of(x.dtype));
      quantize::check_operand(x.shape);
      const auto specs = quantize::operands_of(x.shape, v.attrs<QuantizeAttrs>().format);
      return {specs.begin(), specs.end()};
    },
    .vjp =
        [](VjpContext& c) {
          const TensorId d = c.d_out(quantize::kCodes);
          if (d != kNone) c.contribute(quantize::kX, d);
        },
    .redo = Redo::kCheap,
};

const OpDecl kQuantizeWeightsDecl = {
    .kind = OpKind::kQuantizeWeights,
    .name = "quantize_weights",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      namespace qw = quantize_weights;
      const int count = qw::count(v.op);
      QT_CHECK(count > 0 && std::ssize(v.op.inputs) == count * qw::kInputs,
               "{} inputs are not matrices with their units", v.op.inputs.size());
      std::vector<TensorSpec> specs;
      for (int i = 0; i < count; ++i) {
        QT_CHECK(v.has_in(qw::in(i, qw::kKnownUnit)) == v.has_in(qw::kKnownUnit),
                 "the units of some matrices are known and of others not");
        const Tensor& x = v.in(qw::in(i, qw::kX));
        QT_CHECK(x.dtype == v.in(qw::kX).dtype, "matrices of {} and {}", name_of(x.dtype),
                 name_of(v.in(qw::kX).dtype));
        check_weight(v, i);
        for (TensorSpec spec : quantize::operands_of(x.shape, v.attrs<QuantizeAttrs>().format)) {
          spec.named_after = OpView::slot(v.op.inputs, qw::in(i, qw::kX));
          specs.push_back(spec);
        }
      }
      return specs;
    },
    .redo = Redo::kCheap,
};

}  // namespace quintet
