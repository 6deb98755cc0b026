#include "lab/step_bench.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include <omp.h>

#include "base/clock.h"
#include "base/parallel_for.h"
#include "base/philox.h"
#include "program/shards.h"
#include "runtime/cpu/gemm.h"
#include "runtime/dry_run.h"
#include "train/feed.h"
#include "train/fit.h"
#include "train/model_state.h"

namespace quintet {
namespace {

struct Product {
  bool ta, tb;
  std::int64_t m, n, k;
  DType dtype;
  auto operator<=>(const Product&) const = default;
  double flops() const { return matmul::Sizes{m, n, k}.flops(); }
};

// The matrix products of a step, with how often each shape occurs. Attention's are left out: they
// are many small ones, part of what the step is measured on and not of what it is measured against.
std::map<Product, std::int64_t> products_of(const Program& program) {
  std::map<Product, std::int64_t> products;
  for (const Op& op : program.ops) {
    const OpView v{program, op};
    if (op.kind == OpKind::kMatmul) {
      const auto& attrs = v.attrs<MatmulAttrs>();
      const matmul::Sizes size = matmul::sizes_of(v);
      ++products[{attrs.transpose_a, attrs.transpose_b, size.m, size.n, size.k,
                  v.in(matmul::kA).dtype}];
    } else if (op.kind == OpKind::kLinearCrossEntropy) {
      namespace lce = linear_cross_entropy;
      const std::int64_t tokens = v.in(lce::kX).shape.rows(), width = v.in(lce::kX).shape.cols();
      const std::int64_t words = v.in(lce::kWeight).shape.rows();
      const std::int64_t chunk = std::min(v.attrs<LinearCrossEntropyAttrs>().chunk, tokens);
      for (std::int64_t first = 0; first < tokens; first += chunk) {
        const std::int64_t rows = std::min(chunk, tokens - first);
        const DType dtype = v.in(lce::kX).dtype;
        ++products[{false, true, rows, words, width, dtype}];
        ++products[{false, false, rows, width, words, dtype}];
        ++products[{true, false, words, width, rows, dtype}];
      }
    }
  }
  return products;
}

// Values like a fresh model's, cheaply: one block of normal numbers over and over. Drawing billions
// of them takes longer than the whole measurement.
void fill_weights(Executor& executor) {
  const Program& program = executor.program();
  std::vector<float> normals(1 << 20);
  PhiloxSequence random(1, 3);
  for (float& x : normals) {
    x = 0;  // twelve uniform numbers are as normal as a benchmark needs
    for (int i = 0; i < 12; ++i) x += static_cast<float>(random.uniform()) - 0.5f;
  }
  const auto fill = [&](TensorId tensor, const std::vector<ShardPiece>& pieces) {
    const DType dtype = program.tensor(tensor).dtype;
    if (dtype == DType::kI16) return;  // zero remainders: the weights are those of the working copy
    for (const ShardPiece& piece : pieces) {
      const Weight& weight = weight_of(program, piece);
      with_float_type(dtype, [&]<class T>(T) {
        std::vector<T> block(normals.size());
        for (std::size_t i = 0; i < block.size(); ++i)
          block[i] =
              T(weight.init_std == 0 ? 1.0f : static_cast<float>(weight.init_std) * normals[i]);
        for (std::int64_t done = 0; done < piece.count;) {
          const auto size =
              std::min<std::int64_t>(piece.count - done, static_cast<std::int64_t>(block.size()));
          executor.write(tensor, (piece.offset + done) * size_of(dtype),
                         std::as_bytes(std::span(block).first(static_cast<std::size_t>(size))));
          done += size;
        }
      });
    }
  };
  for (const Shard& shard : program.shards) {
    fill(shard.master, shard.pieces);
    if (shard.working != shard.master) fill(shard.working, shard.pieces);
  }
}

// Seconds of one product at its best: the library, the threads and the shape of the step, warm
// operands.
double time_product(const Product& p) {
  const auto elements = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  std::vector<float> a(elements(p.m * p.k)), b(elements(p.n * p.k)), c(elements(p.m * p.n));
  PhiloxSequence random(1, 2);
  for (float& x : a) x = static_cast<float>(random.uniform() - 0.5);
  for (float& x : b) x = static_cast<float>(random.uniform() - 0.5);
  double best = 1e30;
  const int inner = std::max(1, static_cast<int>(2e7 / p.flops()));
  for (int i = 0; i < 12; ++i) {
    const double start = now();
    for (int j = 0; j < inner; ++j) {
      cpu::gemm(p.ta, p.tb, p.m, p.n, p.k, 1, a.data(), p.ta ? p.m : p.k, b.data(),
                p.tb ? p.k : p.n, 0, c.data(), p.n);
    }
    best = std::min(best, (now() - start) / inner);
  }
  return best;
}

double copy_bandwidth() {
  const std::size_t size = std::size_t{64} << 20;
  std::vector<char> from(size, 1), to(size, 2);
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const double start = now();
    parallel_for(static_cast<std::int64_t>(size), 1 << 16,
                 [&](std::int64_t begin, std::int64_t end, int) {
                   std::memcpy(to.data() + begin, from.data() + begin,
                               static_cast<std::size_t>(end - begin));
                 });
    best = std::min(best, now() - start);
  }
  return 2 * static_cast<double>(size) / best;
}

}  // namespace

Status feed_random(Executor& executor, const StepOptions& options) {
  Batch batch;
  batch.resize(options.batch.micro_batch, options.batch.source, options.batch.target);
  PhiloxSequence random(1, 1);
  const auto words = static_cast<std::uint32_t>(options.model.vocab_size);
  for (std::int32_t m = 0; m < options.accumulate; ++m) {
    for (auto& id : batch.source) id = static_cast<std::int32_t>(random.below(words));
    for (auto& id : batch.labels) id = static_cast<std::int32_t>(random.below(words));
    shift_right(batch.labels, batch.target_length, 0, 0, batch.target);
    QT_TRY(feed(executor, m, batch, options));
  }
  return {};
}

Result<StepTimes> time_steps(const StepOptions& options, int repetitions, double at_most) {
  const Program program = compile_step(options);
  const auto world = make_single_world();
  QT_ASSIGN(auto executor, make_executor(program, *world));
  fill_weights(*executor);
  QT_TRY(feed_random(*executor, options));
  // The first loads code, the second captures the graph; a GPU's clock then falls for a while.
  const double settled = now() + (executor->runs_beside_host() ? at_most / 2 : 0);
  for (int warm_up = 1; warm_up <= 2 || now() < settled; ++warm_up) {
    QT_ASSIGN(const StepResult ignored, run_step(*executor, warm_up, 1e-4));
    static_cast<void>(ignored);
  }
  std::vector<double> seconds;
  const double begin = now();
  while (static_cast<int>(seconds.size()) < repetitions &&
         (seconds.size() < 3 || now() - begin < at_most)) {
    const double start = now();
    QT_TRY(executor->run());
    QT_TRY(executor->wait());
    seconds.push_back(now() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return StepTimes{seconds[seconds.size() / 2], seconds.front(), seconds.back(),
                   executor->device_bytes_in_use()};
}

Result<StepBench> bench_step(const StepOptions& options, int repetitions) {
  const Program program = compile_step(options);
  const auto world = make_single_world();
  QT_ASSIGN(auto executor, make_fitting_executor(program, options, *world));
  fill_weights(*executor);
  QT_TRY(feed_random(*executor, options));
  StepBench bench;
  bench.plan = dry_run(program);
  const DryRun& plan = bench.plan;
  bench.flops = plan.flops;
  bench.tokens = static_cast<double>(options.accumulate * options.batch.micro_batch *
                                     (options.batch.source + options.batch.target));
  QT_ASSIGN(const StepResult warm_up, run_step(*executor, 1, 1e-4));
  static_cast<void>(warm_up);

  std::vector<double> seconds, op_seconds(program.ops.size(), 0);
  for (int i = 0; i < repetitions; ++i) {
    const double start = now();
    QT_TRY(executor->run());
    QT_TRY(executor->wait());
    seconds.push_back(now() - start);
  }
  bench.measured_bytes = executor->device_bytes_in_use();
  executor->measure_ops(true);
  const int measured = std::max(1, repetitions / 4);
  for (int i = 0; i < measured; ++i) {
    QT_TRY(executor->run());
    const std::span<const OpTiming> timings = executor->timings();
    for (std::size_t op = 0; op < timings.size(); ++op)
      op_seconds[op] += timings[op].end - timings[op].start;
  }
  std::sort(seconds.begin(), seconds.end());
  bench.seconds = seconds[seconds.size() / 2];
  bench.fastest = seconds.front();

  std::map<OpKind, KindCost> kinds;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    KindCost& cost = kinds[op.kind];
    cost.kind = name_of(op.kind);
    ++cost.ops;
    cost.seconds += op_seconds[i] / measured;
    cost.flops += flops_of(program, op);
    cost.bytes += bytes_of(program, op);
  }
  for (auto& [kind, cost] : kinds) bench.kinds.push_back(std::move(cost));
  std::sort(bench.kinds.begin(), bench.kinds.end(),
            [](const KindCost& a, const KindCost& b) { return a.seconds > b.seconds; });

  // The ceilings need the device's memory for themselves.
  const std::int64_t beside_arena = executor->backend().bytes_beside_arena(program);
  executor.reset();
  std::unique_ptr<DeviceMeter> meter;
  if (options.target.device == Device::kCuda) {
    QT_ASSIGN(meter, make_cuda_meter());
    bench.predicted_bytes = plan.arena_bytes + beside_arena;
  }
  omp_set_num_threads(options.target.threads);
  double product_flops = 0, product_seconds = 0;
  for (const auto& [product, count] : products_of(program)) {
    product_flops += static_cast<double>(count) * product.flops();
    const auto& [ta, tb, m, n, k, dtype] = product;
    product_seconds +=
        static_cast<double>(count) *
        (meter ? meter->product_seconds(ta, tb, m, n, k, dtype) : time_product(product));
  }
  bench.ceiling_flops = product_flops / product_seconds;
  bench.product_seconds = plan.flops / bench.ceiling_flops;
  bench.copy_bytes = meter ? meter->copy_bytes_per_second() : copy_bandwidth();
  if (meter) {
    const std::int64_t n = 8192;
    const double square = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    bench.square_flops = 2 * square / meter->product_seconds(false, true, n, n, n, DType::kBF16);
  }
  return bench;
}

}  // namespace quintet
