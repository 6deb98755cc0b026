#include "passes/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "program/ordering.h"

namespace quintet {
namespace {

constexpr std::int64_t kAlignment = 256;  // what device kernels and libraries like best

// Storage that one tensor, or several that follow each other in place, occupy for a while. Time is
// counted in positions of the compute stream: [begin, end], both included.
struct Buffer {
  std::int64_t bytes = 0;
  OpId begin = 0, end = 0;
  std::int64_t offset = -1;
};

class Planner {
 public:
  Planner(Program& program, const Backend& backend, const Program* step = nullptr)
      : program_(program), backend_(backend), step_(step) {}

  void run() {
    add_workspaces();
    place_residents();
    collect_lifetimes();
    merge_in_place();
    const std::int64_t transient = place_buffers();
    for (std::size_t t = 0; t < buffer_of_.size(); ++t) {
      if (buffer_of_[t] < 0) continue;
      program_.tensors[t].offset = resident_bytes_ + buffers_[index(root(buffer_of_[t]))].offset;
    }
    program_.arena_bytes = resident_bytes_ + transient;
  }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  void add_workspaces() {
    for (Op& op : program_.ops) {
      const std::int64_t bytes = backend_.scratch_bytes({program_, op});
      if (bytes == 0) continue;
      Tensor scratch{"scratch", Shape{(bytes + 3) / 4}, DType::kF32, Storage::kWorkspace};
      op.workspace = program_.add_tensor(std::move(scratch));
    }
  }

  void place_residents() {
    if (step_ != nullptr) share_parameters();
    // By class, so that a dump of the arena reads in order.
    for (const Storage storage :
         {Storage::kIo, Storage::kParameter, Storage::kOptimizer, Storage::kCache}) {
      for (Tensor& t : program_.tensors) {
        if (t.storage != storage || t.base != kNone || t.offset >= 0) continue;
        t.offset = resident_bytes_;
        resident_bytes_ += aligned(t.bytes(), kAlignment);
      }
    }
    for (Tensor& t : program_.tensors) {
      if (t.storage != Storage::kHost || t.base != kNone) continue;
      t.offset = program_.host_bytes;
      program_.host_bytes += aligned(t.bytes(), kAlignment);
    }
  }

  // Takes the parameters' places over from the other program and begins after all that it keeps.
  void share_parameters() {
    std::map<std::string, const Tensor*> theirs;
    for (const Tensor& t : step_->tensors) {
      if (t.base != kNone || !is_resident(t.storage) || t.storage == Storage::kHost) continue;
      resident_bytes_ = std::max(resident_bytes_, aligned(t.offset + t.bytes(), kAlignment));
      if (t.storage != Storage::kParameter) continue;
      QT_CHECK(theirs.emplace(t.name, &t).second, "two parameter tensors are called {}", t.name);
    }
    for (Tensor& t : program_.tensors) {
      if (t.storage != Storage::kParameter || t.base != kNone) continue;
      const auto found = theirs.find(t.name);
      QT_CHECK(found != theirs.end() && found->second->dtype == t.dtype &&
                   found->second->shape == t.shape,
               "{} is not a parameter of the step", t.name);
      t.offset = found->second->offset;
    }
  }

  template <class Visit>
  static void for_each_slot(const Op& op, const Visit& visit) {
    for (const TensorId t : op.inputs) {
      if (t != kNone) visit(t);
    }
    for (const TensorId t : op.outputs) {
      if (t != kNone) visit(t);
    }
    if (op.workspace != kNone) visit(op.workspace);
  }

  void collect_lifetimes() {
    const Ordering ordering(program_);
    buffer_of_.assign(program_.tensors.size(), -1);
    last_touch_.assign(program_.tensors.size(), -1);
    single_stream_.assign(program_.tensors.size(), true);
    const auto count = static_cast<OpId>(program_.ops.size());
    // An op beside the compute stream is bracketed by what that stream is certain of: it may start
    // once the last compute op it waits for is done, and it is over when a compute op has waited
    // for it.
    std::vector<OpId> over(index(count), -1);
    for (OpId i = count - 1; i >= 0; --i) over[index(i)] = count;
    std::array<OpId, kStreamCount> joined{};
    joined.fill(-1);
    for (OpId i = 0; i < count; ++i) {
      if (program_.ops[index(i)].stream != Stream::kCompute) continue;
      over[index(i)] = i;
      for (int s = 1; s < kStreamCount; ++s) {
        const OpId done = ordering.finished_before(i, static_cast<Stream>(s));
        for (OpId j = joined[index(s)] + 1; j <= done; ++j) {
          if (program_.ops[index(j)].stream == static_cast<Stream>(s)) over[index(j)] = i;
        }
        joined[index(s)] = std::max(joined[index(s)], done);
      }
    }
    for (OpId i = 0; i < count; ++i) {
      const Op& op = program_.ops[index(i)];
      const OpId begin =
          op.stream == Stream::kCompute ? i : ordering.finished_before(i, Stream::kCompute) + 1;
      for_each_slot(op, [&](TensorId t) {
        const TensorId base = program_.base_of(t);
        const Tensor& tensor = program_.tensor(base);
        if (is_resident(tensor.storage)) return;
        auto& at = buffer_of_[index(base)];
        if (at < 0) {
          at = static_cast<std::int32_t>(buffers_.size());
          buffers_.push_back({aligned(tensor.bytes(), kAlignment), begin, over[index(i)]});
          parent_.push_back(at);
        }
        Buffer& buffer = buffers_[index(at)];
        buffer.begin = std::min(buffer.begin, begin);
        buffer.end = std::max(buffer.end, over[index(i)]);
        last_touch_[index(base)] = i;
        if (op.stream != Stream::kCompute) single_stream_[index(base)] = false;
      });
    }
    for (const TensorId t : program_.results) {
      const TensorId base = program_.base_of(t);
      QT_CHECK(buffer_of_[index(base)] >= 0, "result {} is never written", program_.tensor(t).name);
      buffers_[index(buffer_of_[index(base)])].end = count;
      last_touch_[index(base)] = count;
    }
  }

  std::int32_t root(std::int32_t buffer) {
    while (parent_[index(buffer)] != buffer) {
      buffer = parent_[index(buffer)] = parent_[index(parent_[index(buffer)])];
    }
    return buffer;
  }

  // Lets a result take the storage of an input that dies with the op that makes it, where the op's
  // declaration allows it.
  void merge_in_place() {
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      if (op.stream != Stream::kCompute) continue;
      for (const InPlace& pair : declaration(op.kind).in_place) {
        if (pair.output < 0) continue;
        const TensorId out = OpView::slot(op.outputs, pair.output);
        const TensorId in = OpView::slot(op.inputs, pair.input);
        if (out == kNone || in == kNone || !can_take_over(out, in, static_cast<OpId>(i))) continue;
        const std::int32_t from = root(buffer_of_[index(in)]), to = root(buffer_of_[index(out)]);
        buffers_[index(from)].end = std::max(buffers_[index(from)].end, buffers_[index(to)].end);
        parent_[index(to)] = from;
        break;
      }
    }
  }
  bool can_take_over(TensorId out, TensorId in, OpId at) {
    const Tensor &o = program_.tensor(out), &i = program_.tensor(in);
    if (o.base != kNone || i.base != kNone || out == in) return false;
    if (buffer_of_[index(out)] < 0 || buffer_of_[index(in)] < 0) return false;
    const auto& inputs = program_.ops[index(at)].inputs;
    return o.bytes() == i.bytes() && last_touch_[index(in)] == at && single_stream_[index(in)] &&
           single_stream_[index(out)] && buffers_[index(buffer_of_[index(out)])].begin == at &&
           std::count(inputs.begin(), inputs.end(), in) == 1;
  }

  // Sets the offset of every root buffer and returns how many bytes they need together. Two
  // strategies, and the better result: neither is best for every program, and both are cheap beside
  // a step.
  std::int64_t place_buffers() {
    std::vector<std::int32_t> roots;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(buffers_.size()); ++i) {
      if (root(i) == i && buffers_[index(i)].bytes > 0) roots.push_back(i);
    }
    for (Buffer& buffer : buffers_) buffer.offset = 0;
    const std::int64_t in_order = place_in_order(roots);
    if (roots.size() > kMaxForBySize) return in_order;
    std::vector<std::int64_t> offsets;
    for (const std::int32_t r : roots) offsets.push_back(buffers_[index(r)].offset);
    const std::int64_t by_size = place_by_size(roots);
    if (by_size <= in_order) return by_size;
    for (std::size_t i = 0; i < roots.size(); ++i) buffers_[index(roots[i])].offset = offsets[i];
    return in_order;
  }

  // Beyond this many buffers the quadratic strategy would take longer than people like to wait.
  static constexpr std::size_t kMaxForBySize = 12000;

  // Follows the program: frees what has ended, takes the smallest hole that fits. O(n log n).
  std::int64_t place_in_order(const std::vector<std::int32_t>& roots) {
    std::vector<std::int32_t> order = roots;
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const Buffer &x = buffers_[index(a)], &y = buffers_[index(b)];
      return std::tie(x.begin, y.bytes, a) < std::tie(y.begin, x.bytes, b);
    });
    std::map<std::int64_t, std::int64_t> holes;  // offset -> bytes
    std::multimap<OpId, std::int32_t> ending;    // end -> buffer
    std::int64_t top = 0, peak = 0;
    const auto release = [&](std::int64_t offset, std::int64_t bytes) {
      auto next = holes.lower_bound(offset);
      if (next != holes.end() && offset + bytes == next->first) {
        bytes += next->second;
        next = holes.erase(next);
      }
      if (next != holes.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == offset) {
          offset = before->first;
          bytes += before->second;
          holes.erase(before);
        }
      }
      if (offset + bytes == top) {
        top = offset;
      } else {
        holes[offset] = bytes;
      }
    };
    for (const std::int32_t r : order) {
      Buffer& buffer = buffers_[index(r)];
      while (!ending.empty() && ending.begin()->first < buffer.begin) {
        const Buffer& gone = buffers_[index(ending.begin()->second)];
        ending.erase(ending.begin());
        release(gone.offset, gone.bytes);
      }
      auto best = holes.end();
      for (auto hole = holes.begin(); hole != holes.end(); ++hole) {
        if (hole->second < buffer.bytes) continue;
        if (best == holes.end() || hole->second < best->second) best = hole;
      }
      if (best == holes.end()) {
        buffer.offset = top;
        top += buffer.bytes;
      } else {
        buffer.offset = best->first;
        const std::int64_t rest = best->second - buffer.bytes;
        holes.erase(best);
        if (rest > 0) holes[buffer.offset + buffer.bytes] = rest;
      }
      peak = std::max(peak, top);
      ending.insert({buffer.end, r});
    }
    return peak;
  }

  // Largest first, each at the lowest place that is free during its life. O(n^2).
  std::int64_t place_by_size(const std::vector<std::int32_t>& roots) {
    std::vector<std::int32_t> order = roots;
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const Buffer &x = buffers_[index(a)], &y = buffers_[index(b)];
      return std::tie(y.bytes, x.begin, a) < std::tie(x.bytes, y.begin, b);
    });
    std::vector<Buffer> placed;  // by offset
    placed.reserve(order.size());
    std::int64_t peak = 0;
    for (const std::int32_t r : order) {
      Buffer& buffer = buffers_[index(r)];
      std::int64_t offset = 0;
      for (const Buffer& other : placed) {
        if (other.offset >= offset + buffer.bytes) break;
        if (other.end < buffer.begin || other.begin > buffer.end) continue;
        offset = std::max(offset, other.offset + other.bytes);
      }
      buffer.offset = offset;
      peak = std::max(peak, offset + buffer.bytes);
      placed.insert(
          std::upper_bound(placed.begin(), placed.end(), buffer,
                           [](const Buffer& a, const Buffer& b) { return a.offset < b.offset; }),
          buffer);
    }
    return peak;
  }

  Program& program_;
  const Backend& backend_;
  const Program* const step_;  // whose arena this is; null: its own
  std::int64_t resident_bytes_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<std::int32_t> buffer_of_;  // by base tensor, -1: resident or unused
  std::vector<std::int32_t> parent_;     // union-find over buffers
  std::vector<OpId> last_touch_;         // by base tensor
  std::vector<bool> single_stream_;      // by base tensor: touched by the compute stream alone
};

}  // namespace

void plan_memory(Program& program, const Backend& backend) {
  program.target = backend.target();
  Planner(program, backend).run();
}

void plan_memory_beside(Program& program, const Program& step, const Backend& backend) {
  program.target = backend.target();
  Planner(program, backend, &step).run();
}

}  // namespace quintet
