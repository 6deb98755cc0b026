#include "lab/machine.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"
#include "base/index.h"

namespace quintet {
namespace {

// Which operands are in a device's cache: the last so many bytes that ops touched. Memory is seen
// in pages, by address, since places in the arena are used again and again.
class CachedPages {
 public:
  CachedPages(const Program& program, double cache_bytes)
      : program_(program),
        cache_bytes_(cache_bytes),
        touched_(index(program.arena_bytes / kPage + 2), -1e30) {}

  // The share of an op's operand bytes that is still in the cache; the operands are then touched.
  double touch(const Op& op) {
    if (cache_bytes_ <= 0) return 0;
    double bytes = 0, cached = 0;
    const double before = clock_;
    for (const auto* slots : {&op.inputs, &op.outputs}) {
      for (const TensorId id : *slots) {
        if (id == kNone) continue;
        const Tensor& tensor = program_.tensor(id);
        if (tensor.storage == Storage::kHost || program_.address_of(id) < 0) continue;
        const auto size = static_cast<double>(tensor.bytes());
        bytes += size;
        if (size >= 2 * cache_bytes_) {
          clock_ += size;  // drives everything else out, and itself
          continue;
        }
        const std::int64_t first = program_.address_of(id) / kPage;
        const std::int64_t last =
            (program_.address_of(id) + std::max<std::int64_t>(tensor.bytes(), 1) - 1) / kPage;
        const double page_bytes = size / static_cast<double>(last - first + 1);
        for (std::int64_t page = first; page <= last; ++page) {
          double& at = touched_[index(page)];
          // What this op itself touched before counts as touched now.
          const double age = before - std::min(at, before);
          cached += page_bytes * std::clamp(1 - age / cache_bytes_, 0.0, 1.0);
          clock_ += page_bytes;
          at = clock_;
        }
      }
    }
    return bytes > 0 ? cached / bytes : 0;
  }

 private:
  static constexpr std::int64_t kPage = std::int64_t{1} << 18;
  const Program& program_;
  const double cache_bytes_;
  double clock_ = 0;  // bytes touched so far
  std::vector<double> touched_;
};

DType dtype_of_products(const Program& program, const Op& op) {
  return op.inputs.empty() || op.inputs[0] == kNone ? DType::kF32
                                                    : program.tensor(op.inputs[0]).dtype;
}

}  // namespace

double EfficiencySection::of(OpClass op_class) const {
  switch (op_class) {
    case OpClass::kProduct:
      return product;
    case OpClass::kAttention:
      return attention;
    case OpClass::kLoss:
      return loss;
    case OpClass::kLookup:
      return lookup;
    case OpClass::kUpdate:
      return update;
    case OpClass::kMemory:
      return memory;
    case OpClass::kCopy:
      return 1;
  }
  return 1;
}

double Machine::flops_per_second(DType dtype) const {
  // Units that multiply eight-bit floats do so twice as fast as bf16; a CPU widens them.
  if (is_fp8(dtype) && kind() == Device::kCuda) return 2 * device.bf16_tflop_per_s * 1e12;
  return (dtype == DType::kBF16 ? device.bf16_tflop_per_s : device.fp32_tflop_per_s) * 1e12;
}

double Machine::beside_ranks(OpClass op_class, double ranks) const {
  double below = 1, factor_below = 1;
  for (const auto& [key, factor] : ranks_table_) {
    if (key.second != op_class) continue;
    const auto above = static_cast<double>(key.first);
    if (above >= ranks) {
      const double share = above > below ? std::max(0.0, (ranks - below) / (above - below)) : 1;
      return factor_below + share * (factor - factor_below);
    }
    below = above;
    factor_below = factor;
  }
  return factor_below;
}

double Machine::floor_seconds(const Program& program, const Op& op) const {
  return std::max(flops_of(program, op) / flops_per_second(dtype_of_products(program, op)),
                  moved_bytes(program, op) / memory_bytes_per_second());
}

OpTime Machine::roofline(const Program& program, const Op& op) const {
  return {floor_seconds(program, op) / efficiency.of(class_of(op.kind)) + device.op_us * 1e-6,
          Origin::kDataSheet};
}

OpTime Machine::seconds_of(const Program& program, const Op& op, const OpKey& key,
                           double cached_share) const {
  QT_CHECK(!is_communication(op.kind), "the time of {} by itself", name_of(op.kind));
  const auto mix = [&](const OpSeconds& s) { return s.cold + cached_share * (s.warm - s.cold); };
  if (const auto exact = ops.measured(key)) return {mix(*exact), Origin::kMeasured};
  if (const auto near = ops.interpolated(key)) return {mix(*near), Origin::kInterpolated};
  if (op.kind == OpKind::kCopy && key.variant != "local") {
    const auto bytes = static_cast<double>(key.sizes[0]);
    const bool into = key.variant == "in";
    // On a CPU host memory is no other memory.
    const double rate =
        kind() == Device::kCuda ? copy_bytes_per_second(into) : memory_bytes_per_second() / 2;
    const auto& names = device.measured;
    const bool measured = std::find(names.begin(), names.end(),
                                    into ? "copy_in_gb_per_s" : "copy_out_gb_per_s") != names.end();
    return {device.copy_latency_us * 1e-6 + bytes / rate,
            measured ? Origin::kInterpolated : Origin::kDataSheet};
  }
  return roofline(program, op);
}

OpTime Machine::seconds_of(const Program& program, const Op& op) const {
  return seconds_of(program, op, key_of(program, op), 0);
}

std::vector<OpTime> Machine::times_of(const Program& program) const {
  CachedPages cache(program, cache_bytes());
  // The same op, in the same state, has the same time: in steps of a sixteenth.
  std::map<std::pair<OpKey, int>, OpTime> known;
  std::vector<OpTime> times(program.ops.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Op& op = program.ops[i];
    const auto sixteenths = static_cast<int>(std::lround(16 * cache.touch(op)));
    if (is_communication(op.kind)) continue;
    const auto [entry, is_new] = known.try_emplace({key_of(program, op), sixteenths});
    if (is_new) entry->second = seconds_of(program, op, entry->first.first, sixteenths / 16.0);
    times[i] = entry->second;
  }
  return times;
}

std::optional<OpTime> Machine::collective_seconds(const CollectiveKey& key,
                                                  std::int64_t bytes) const {
  const auto table = collectives.find(key);
  if (table == collectives.end() || bytes < 1) return std::nullopt;
  const auto& points = table->second;
  const auto above = points.lower_bound(bytes);
  if (above != points.end() && above->first == bytes)
    return OpTime{above->second, Origin::kMeasured};
  if (above == points.begin()) {
    // Smaller than any: no message is faster than the smallest.
    return OpTime{above->second, Origin::kInterpolated};
  }
  const auto below = std::prev(above);
  if (above == points.end()) {
    // Larger than any: the rate between the last two goes on, up to sixteen times as far.
    if (bytes > 16 * below->first) return std::nullopt;
    if (below == points.begin())
      return OpTime{below->second * static_cast<double>(bytes) / static_cast<double>(below->first),
                    Origin::kInterpolated};
    const auto before = std::prev(below);
    const double slope = std::max(0.0, below->second - before->second) /
                         static_cast<double>(below->first - before->first);
    return OpTime{below->second + slope * static_cast<double>(bytes - below->first),
                  Origin::kInterpolated};
  }
  // Latency and rate: linear in the bytes between two points.
  const double share =
      static_cast<double>(bytes - below->first) / static_cast<double>(above->first - below->first);
  return OpTime{below->second + share * (above->second - below->second), Origin::kInterpolated};
}

}  // namespace quintet
