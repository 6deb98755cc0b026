#include "program/ops/quantize.h"

#include <algorithm>

#include "runtime/cpu/codes.h"
#include "runtime/cpu/kernel.h"

namespace quintet::cpu {
namespace {

// Calls body with the types of what is rounded, or turned, and of its codes.
template <class Body>
void with_types(const OpContext& op, const Body& body) {
  const DType dtype = op.in(quantize::kX).dtype;
  with_fp8_type(op.attrs<QuantizeAttrs>().format, [&]<class F>(F) {
    if (is_fp8(dtype)) return body.template operator()<F, F>();
    with_float_type(dtype, [&]<class T>(T) { body.template operator()<T, F>(); });
  });
}

}  // namespace

void quantize(const OpContext& op) {
  with_types(op, [&]<class T, class F>() {
    const auto* x = op.in_data<T>(quantize::kX);
    const Shape& shape = op.in(quantize::kX).shape;
    const bool known = op.has_in(quantize::kKnownUnit);
    const auto* slots = op.in_data<std::uint32_t>(quantize::kLargest);
    const auto largest = [&] {
      return slots == nullptr ? largest_magnitude(x, shape.numel())
                              : *std::max_element(slots, slots + quantize::kSlots);
    };
    const float unit =
        known ? *op.in_data<float>(quantize::kKnownUnit) : fp8_unit(largest(), F::kLargestExponent);
    if (!known) *op.out_data<float>(quantize::kUnit) = unit;
    write_codes(x, shape, unit, op.out_data<F>(quantize::kCodes),
                op.out_data<F>(quantize::kTransposed));
  });
}

void quantize_weights(const OpContext& op) {
  namespace qw = quantize_weights;
  with_types(op, [&]<class T, class F>() {
    for (int i = 0; i < qw::count(op.op); ++i) {
      const auto* x = op.in_data<T>(qw::in(i, qw::kX));
      const Shape& shape = op.in(qw::in(i, qw::kX)).shape;
      const auto* known = op.in_data<float>(qw::in(i, qw::kKnownUnit));
      const float unit = known != nullptr
                             ? *known
                             : fp8_unit(largest_magnitude(x, shape.numel()), F::kLargestExponent);
      if (auto* found = op.out_data<float>(qw::out(i, quantize::kUnit))) *found = unit;
      write_codes(x, shape, unit, op.out_data<F>(qw::out(i, quantize::kCodes)),
                  op.out_data<F>(qw::out(i, quantize::kTransposed)));
    }
  });
}

}  // namespace quintet::cpu
