#include "tests/ops/op_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include <gtest/gtest.h>

#include "base/philox.h"
#include "passes/memory_plan.h"
#include "program/verifier.h"
#include "runtime/backend.h"
#include "runtime/dry_run.h"
#include "runtime/executor.h"

namespace quintet::testing {
namespace {

double round_to(DType dtype, double value) {
  if (dtype == DType::kF32) return static_cast<double>(static_cast<float>(value));
  if (dtype == DType::kBF16) {
    return static_cast<double>(static_cast<float>(bf16(static_cast<float>(value))));
  }
  if (is_fp8(dtype)) {
    return with_fp8_type(dtype, [&]<class F>(F) {
      return static_cast<double>(static_cast<float>(F(static_cast<float>(value))));
    });
  }
  return value;
}

template <class T>
void encode(const HostTensor& t, std::vector<std::byte>& bytes) {
  for (std::size_t i = 0; i < t.values.size(); ++i) {
    T value{};
    if constexpr (std::is_class_v<T>) {
      value = T(static_cast<float>(t.values[i]));
    } else {
      value = static_cast<T>(t.values[i]);
    }
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
}
template <class T>
void decode(const std::vector<std::byte>& bytes, HostTensor& t) {
  for (std::size_t i = 0; i < t.values.size(); ++i) {
    T value{};
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    if constexpr (std::is_class_v<T>) {
      t.values[i] = static_cast<double>(static_cast<float>(value));
    } else {
      t.values[i] = static_cast<double>(value);
    }
  }
}
template <class Body>
void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(float{});
    case DType::kBF16:
      return body(bf16{});
    case DType::kI32:
      return body(std::int32_t{});
    case DType::kI64:
      return body(std::int64_t{});
    case DType::kI16:
      return body(std::int16_t{});
    case DType::kU8:
      return body(std::uint8_t{});
    case DType::kE4M3:
      return body(e4m3{});
    case DType::kE5M2:
      return body(e5m2{});
  }
}

std::vector<std::byte> to_bytes(const HostTensor& t) {
  std::vector<std::byte> bytes(t.values.size() * static_cast<std::size_t>(size_of(t.dtype)));
  with_type(t.dtype, [&]<class T>(T) { encode<T>(t, bytes); });
  return bytes;
}

}  // namespace

HostTensor none() {
  HostTensor t;
  t.absent = true;
  return t;
}
HostTensor scalar(double value, DType dtype) {
  return {Shape{1}, dtype, {value}};
}
HostTensor integers(Shape shape, std::vector<double> values) {
  return {shape, DType::kI32, std::move(values)};
}

HostTensor random(Shape shape, DType dtype, std::uint64_t seed, double scale) {
  HostTensor t{shape, dtype, std::vector<double>(static_cast<std::size_t>(shape.numel()))};
  PhiloxSequence sequence(seed, stream_of("test"));
  for (double& value : t.values) {
    const double radius = std::sqrt(-2 * std::log(sequence.uniform() + 0x1p-33));
    value = round_to(dtype, scale * radius * std::cos(2 * std::numbers::pi * sequence.uniform()));
  }
  return t;
}

HostTensor random_ids(Shape shape, std::int64_t below, std::uint64_t seed) {
  HostTensor t{shape, DType::kI32, std::vector<double>(static_cast<std::size_t>(shape.numel()))};
  PhiloxSequence sequence(seed, stream_of("ids"));
  for (double& value : t.values) value = sequence.below(static_cast<std::uint32_t>(below));
  return t;
}

std::vector<HostTensor> run_op(const OpCase& c, Device device) {
  Program program;
  Op op;
  op.kind = c.kind;
  op.attrs = c.attrs;
  op.tag.unit = -1;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const HostTensor& input = c.inputs[i];
    op.inputs.push_back(input.absent
                            ? kNone
                            : program.add_tensor(Tensor{fmt::format("in{}", i), input.shape,
                                                        input.dtype, Storage::kIo}));
  }
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    if (c.outputs[i] == kSkip) {
      op.outputs.push_back(kNone);
    } else if (c.outputs[i] >= 0) {
      op.outputs.push_back(op.inputs[static_cast<std::size_t>(c.outputs[i])]);
    } else if (i < c.output_like.size() && !c.output_like[i].absent) {
      op.outputs.push_back(program.add_tensor(Tensor{
          fmt::format("out{}", i), c.output_like[i].shape, c.output_like[i].dtype, Storage::kIo}));
    } else {
      // Absent while the shapes are inferred, then as declared.
      op.outputs.push_back(kNone);
    }
  }
  const auto specs = declaration(op.kind).infer({program, op});
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    if (c.outputs[i] != kMake || op.outputs[i] != kNone) continue;
    op.outputs[i] = program.add_tensor(
        Tensor{fmt::format("out{}", i), specs[i].shape, specs[i].dtype, Storage::kIo});
  }
  program.ops.push_back(op);
  Target target{device, 2};
  plan_memory(program, *make_backend(target));
  const auto findings = verify(program);
  EXPECT_TRUE(findings.empty()) << c.name << ": " << findings.front();

  const auto world = make_single_world();
  auto made = make_executor(program, *world);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  Executor& executor = *made.value();
  EXPECT_EQ(dry_run(program).arena_bytes, executor.arena_bytes());
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const std::vector<std::byte> poison(static_cast<std::size_t>(program.tensors[t].bytes()),
                                        std::byte{0xff});
    executor.write(static_cast<TensorId>(t), 0, poison);
  }
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.inputs[i].absent) executor.write(op.inputs[i], 0, to_bytes(c.inputs[i]));
  }
  EXPECT_TRUE(executor.run().ok());
  std::vector<HostTensor> results;
  for (const TensorId id : op.outputs) {
    HostTensor result = none();
    if (id != kNone) {
      const Tensor& t = program.tensor(id);
      result = {t.shape, t.dtype, std::vector<double>(static_cast<std::size_t>(t.shape.numel()))};
      std::vector<std::byte> bytes(static_cast<std::size_t>(t.bytes()));
      executor.read(id, 0, bytes);
      with_type(t.dtype, [&]<class T>(T) { decode<T>(bytes, result); });
    }
    results.push_back(std::move(result));
  }
  return results;
}

double relative_error(const HostTensor& a, const HostTensor& b) {
  EXPECT_EQ(a.values.size(), b.values.size());
  if (a.values.size() != b.values.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    difference += (a.values[i] - b.values[i]) * (a.values[i] - b.values[i]);
    norm += b.values[i] * b.values[i];
  }
  const double error = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  return std::isfinite(error) ? error : INFINITY;
}

void expect_op(const OpCase& c, const std::vector<HostTensor>& expected, double tolerance) {
  const auto results = run_op(c);
  ASSERT_EQ(results.size(), expected.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (expected[i].absent) continue;
    EXPECT_LE(relative_error(results[i], expected[i]), tolerance) << c.name << ", result " << i;
  }
  for (const InPlace& pair : declaration(c.kind).in_place) {
    if (pair.output < 0) continue;
    const auto out = static_cast<std::size_t>(pair.output),
               in = static_cast<std::size_t>(pair.input);
    if (out >= c.outputs.size() || c.outputs[out] != kMake) continue;
    if (in >= c.inputs.size() || c.inputs[in].absent) continue;
    OpCase in_place = c;
    in_place.outputs[out] = pair.input;
    const auto again = run_op(in_place);
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(again[i].values, results[i].values)
          << c.name << ": result " << out << " in place of input " << in;
    }
  }
}

void expect_largest(OpCase c, const std::vector<LargestOf>& pairs, int input, std::int64_t place) {
  const auto at = [](int slot) { return static_cast<std::size_t>(slot); };
  const auto without = run_op(c);
  for (const LargestOf& pair : pairs) {
    if (c.outputs.size() <= at(pair.largest)) c.outputs.resize(at(pair.largest) + 1, kSkip);
    c.outputs[at(pair.largest)] = kMake;
  }
  for (const bool with_nan : {false, true}) {
    if (with_nan) c.inputs[at(input)].at(place) = static_cast<double>(NAN);
    const auto out = run_op(c);
    for (std::size_t i = 0; i < without.size() && !with_nan; ++i)
      EXPECT_EQ(out[i].values, without[i].values) << c.name << ", result " << i;
    for (const LargestOf& pair : pairs) {
      double largest = 0;
      for (const double value : out[at(pair.result)].values)
        largest = std::isnan(value) || std::isnan(largest) ? static_cast<double>(NAN)
                                                           : std::max(largest, std::abs(value));
      EXPECT_EQ(std::isnan(largest), with_nan) << c.name << ", result " << pair.result;
      double slots = 0;
      for (const double bits : out[at(pair.largest)].values) {
        EXPECT_GE(bits, 0) << c.name << ", a slot that was not emptied";
        slots = std::max(slots, bits);
      }
      const float found = std::bit_cast<float>(static_cast<std::int32_t>(slots));
      if (with_nan) {
        EXPECT_TRUE(std::isnan(found)) << c.name << ", result " << pair.result;
      } else {
        EXPECT_EQ(static_cast<double>(found), largest) << c.name << ", result " << pair.result;
      }
    }
  }
}

HostTensor numeric_gradient(const ScalarFunction& f, std::vector<HostTensor> inputs,
                            std::size_t i) {
  HostTensor gradient = inputs[i];
  constexpr double kStep = 1e-5;
  for (std::size_t e = 0; e < gradient.values.size(); ++e) {
    double& x = inputs[i].values[e];
    const double original = x;
    x = original + kStep;
    const double above = f(inputs);
    x = original - kStep;
    const double below = f(inputs);
    x = original;
    gradient.values[e] = (above - below) / (2 * kStep);
  }
  return gradient;
}

Direction directional_gradient(const ScalarFunction& f, std::vector<HostTensor> inputs,
                               std::size_t i, std::uint64_t seed) {
  Direction result;
  result.direction = random(inputs[i].shape, DType::kF32, seed);
  constexpr double kStep = 1e-5;
  const std::vector<double> original = inputs[i].values;
  const auto shifted = [&](double step) {
    for (std::size_t e = 0; e < original.size(); ++e) {
      inputs[i].values[e] = original[e] + step * result.direction.values[e];
    }
    return f(inputs);
  };
  const double above = shifted(kStep);
  result.derivative = (above - shifted(-kStep)) / (2 * kStep);
  return result;
}

double dot(const HostTensor& a, const HostTensor& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) sum += a.values[i] * b.values[i];
  return sum;
}

}  // namespace quintet::testing
