// The one harness every op kind is tested with, on every device. A case is an op with concrete
// operands; it is compiled into a program of that one op, planned, verified and run by the device's
// executor, and its results come back as doubles. What they should be comes from reference.h, which
// shares no code with any kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "program/op.h"
#include "program/op_decl.h"

namespace quintet::testing {

// The device that the tests of a binary are about. The same tests are built once for each.
#ifdef QUINTET_TEST_CUDA
inline constexpr Device kTestDevice = Device::kCuda;
#else
inline constexpr Device kTestDevice = Device::kCpu;
#endif

struct HostTensor {
  Shape shape;
  DType dtype = DType::kF32;
  std::vector<double> values;
  bool absent = false;

  double& at(std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  double at(std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
};

HostTensor none();
HostTensor scalar(double value, DType dtype = DType::kF32);
HostTensor integers(Shape shape, std::vector<double> values);
// Normal values times `scale`, rounded to what `dtype` can hold; different for every seed.
HostTensor random(Shape shape, DType dtype, std::uint64_t seed, double scale = 1);
HostTensor random_ids(Shape shape, std::int64_t below, std::uint64_t seed);

// What becomes of a result: a new tensor of the declared shape, or it is not asked for.
inline constexpr int kMake = -1, kSkip = -2;

struct OpCase {
  std::string name;
  OpKind kind{};
  Attrs attrs;
  std::vector<HostTensor> inputs;
  // For each result: kMake, kSkip, or the index of the input it updates in place (an addend, a
  // moment).
  std::vector<int> outputs;
  // Where kMake cannot know the dtype or shape: those of a weight's gradient.
  std::vector<HostTensor> output_like;
};

// Runs the case. Results in the order of `outputs`, absent ones empty. Before the run every result
// and the scratch hold NaN bytes, so that an element nothing wrote cannot pass.
std::vector<HostTensor> run_op(const OpCase& c, Device device = kTestDevice);

// |a - b| / |b| over all elements (absolute where b is all zero); infinite if anything is not
// finite.
double relative_error(const HostTensor& a, const HostTensor& b);

// Runs the case and compares each result with `expected` (absent: not compared); then once for
// every pair the op declares as in-place, where the result must have the same bits.
void expect_op(const OpCase& c, const std::vector<HostTensor>& expected, double tolerance);

// A result, and that which holds its largest magnitude (program/ops/quantize.h).
struct LargestOf {
  int result, largest;
};
// Runs the case, of bf16, with and without results that hold largest magnitudes: they must be those
// of the results, which have the same bits either way; and NaN if one input is NaN at one place,
// which all these results must depend on.
void expect_largest(OpCase c, const std::vector<LargestOf>& pairs, int input, std::int64_t place);

// Gradients by central differences in double: of the scalar f in every element of inputs[i].
using ScalarFunction = std::function<double(const std::vector<HostTensor>&)>;
HostTensor numeric_gradient(const ScalarFunction& f, std::vector<HostTensor> inputs, std::size_t i);
// The same along one random direction: for operands too large to visit every element.
struct Direction {
  HostTensor direction;
  double derivative = 0;
};
Direction directional_gradient(const ScalarFunction& f, std::vector<HostTensor> inputs,
                               std::size_t i, std::uint64_t seed);
double dot(const HostTensor& a, const HostTensor& b);

// Largest relative error accepted of an op whose values pass once through `dtype`. fp32: a few
// thousand roundings of 6e-8 that partly cancel. bf16: one rounding is 2^-9 = 2e-3, gradients pass
// two or three.
inline double tolerance(DType dtype) {
  return dtype == DType::kF32 ? 1e-5 : 1e-2;
}

}  // namespace quintet::testing
