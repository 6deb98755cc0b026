// Packed rows learn what their segments would learn apart: two examples in one row against the same
// two in rows of their own. Built once for each device.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/programs.h"
#include "train/feed.h"
#include "train/model_state.h"

namespace quintet {
namespace {

struct Examples {
  const char* name;
  DType dtype;
  std::int64_t head_dim;
  std::int64_t sources[2], targets[2];  // tokens of the two examples
  double bound;
};

void PrintTo(const Examples& s, std::ostream* out) {
  *out << s.name;
}

class PackedRows : public ::testing::TestWithParam<Examples> {
 protected:
  // The loss, and the norm of every weight's gradient.
  static std::vector<double> run(bool packed) {
    const Examples& s = GetParam();
    StepOptions options = testing::tiny_step();
    options.model.dropout = 0;
    options.model.d_kv = s.head_dim;
    options.options.dtype = options.options.grad_dtype = s.dtype;
    options.update = false;
#ifdef QUINTET_TEST_CUDA
    options.target.device = Device::kCuda;
#endif
    // In rows of their own each is padded to the longer one; together, there is some room left.
    const std::int64_t source = std::max(s.sources[0], s.sources[1]);
    const std::int64_t target = std::max(s.targets[0], s.targets[1]);
    options.batch = packed ? BatchShape{1, s.sources[0] + s.sources[1] + 1,
                                        s.targets[0] + s.targets[1] + 1, false, true}
                           : BatchShape{2, source, target, true, false};
    Batch batch;
    batch.resize(options.batch.micro_batch, options.batch.source, options.batch.target);
    if (packed) {
      batch.source_segments.assign(batch.source.size(), 0);
      batch.target_segments.assign(batch.labels.size(), 0);
    }
    for (std::int32_t example = 0; example < 2; ++example) {
      const auto word = [&](std::int64_t i) { return static_cast<std::int32_t>(3 + i * 7 % 90); };
      const auto put = [&](std::int64_t first, std::int64_t count, std::int64_t from,
                           std::vector<std::int32_t>& ids, std::vector<std::int32_t>& segments) {
        for (std::int64_t i = 0; i < count; ++i) {
          ids[static_cast<std::size_t>(first + i)] = word(from + i);
          if (packed) segments[static_cast<std::size_t>(first + i)] = example + 1;
        }
      };
      if (!packed) batch.lengths.push_back(static_cast<std::int32_t>(s.sources[example]));
      put(example * (packed ? s.sources[0] : source), s.sources[example], 100 * example,
          batch.source, batch.source_segments);
      put(example * (packed ? s.targets[0] : target), s.targets[example], 200 * example + 50,
          batch.labels, batch.target_segments);
    }
    if (packed) {
      shift_right_in_segments(batch.labels, batch.target_segments, batch.target_length, 0, 0,
                              batch.target);
    } else {
      shift_right(batch.labels, batch.target_length, 0, 0, batch.target);
    }
    const Program program = compile_step(options);
    const auto world = make_single_world();
    const auto executor = make_executor(program, *world);
    EXPECT_TRUE(executor.ok()) << (executor.ok() ? "" : executor.error().message);
    ModelState state(*executor.value(), *world, options.model);
    state.initialise(3);
    EXPECT_TRUE(feed(*executor.value(), 0, batch, options).ok());
    std::vector<double> values = {run_step(*executor.value(), 1, 0).value().loss};
    for (const Weight& weight : state.weights()) {
      double square = 0;
      for (const float g : state.gather_gradient(weight.name))
        square += static_cast<double>(g) * static_cast<double>(g);
      values.push_back(std::sqrt(square));
    }
    return values;
  }
};

TEST_P(PackedRows, AreTheirSegmentsApart) {
  const auto together = run(true), apart = run(false);
  ASSERT_EQ(together.size(), apart.size());
  for (std::size_t i = 0; i < apart.size(); ++i)
    EXPECT_NEAR(together[i], apart[i], GetParam().bound * std::max(apart[i], 1e-3)) << i;
}

// The last is large enough for the tiles of the Hopper kernels, and for rows that see nothing of
// the first of them.
INSTANTIATE_TEST_SUITE_P(
    All, PackedRows,
    ::testing::Values(Examples{"small", DType::kF32, 16, {5, 4}, {3, 4}, 1e-5},
                      Examples{"long", DType::kF32, 64, {150, 170}, {140, 131}, 1e-4},
                      Examples{"long_bf16", DType::kBF16, 64, {150, 170}, {140, 131}, 2e-2}));

}  // namespace
}  // namespace quintet
