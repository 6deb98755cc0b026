#include "lab/probe.h"

#include <algorithm>
#include <cmath>

#include "base/index.h"
#include "base/philox.h"

namespace quintet {
namespace {

constexpr std::int64_t kAlign = 256;
constexpr int kMostCopies = 64;

bool contains(const std::vector<TensorId>& list, TensorId id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

// What integers mean to an op: the bound below which ids must be, 0 for lengths and segments.
std::int64_t bound_of(const OpView& v, int slot) {
  switch (v.op.kind) {
    case OpKind::kEmbedding:
      return v.in(embedding::kTable).shape.rows();
    case OpKind::kEmbeddingBackward:
      return v.out(embedding_backward::kDTable).shape.rows();
    case OpKind::kLinearCrossEntropy:
      return v.in(linear_cross_entropy::kWeight).shape.rows();
    case OpKind::kCountLabels:
      return 1 << 10;
    case OpKind::kAttention:
      return slot == attention::kLengths ? -v.in(attention::kQ).shape[1] : 1;
    case OpKind::kAttentionBackward:
      return slot == attention_backward::kLengths ? -v.in(attention_backward::kQ).shape[1] : 1;
    default:
      return 2;
  }
}

}  // namespace

TensorId Probe::integers(const Program& from, const Op& op, int slot) {
  const OpView v{from, op};
  const Tensor& like = v.in(slot);
  // A step's number is 1; a length is that of the keys where there are others than the queries.
  std::int64_t bound = like.dtype == DType::kI64 ? 0 : bound_of(v, slot);
  if (bound < 0) {
    const int kv = op.kind == OpKind::kAttention ? int{attention::kKv} : attention_backward::kKv;
    if (v.has_in(kv)) bound = -v.in(kv).shape[1];
  }
  const auto [entry, is_new] =
      integers_.try_emplace({like.dtype, like.shape.numel(), bound}, kNone);
  if (is_new) {
    Tensor tensor{"integers", Shape{like.shape.numel()}, like.dtype, Storage::kIo};
    tensor.offset = integer_bytes_;
    integer_bytes_ += aligned(tensor.bytes(), kAlign);
    entry->second = program_.add_tensor(std::move(tensor));
  }
  // The same bytes in the shape that the op expects.
  return program_.add_view("integers", entry->second, 0, like.shape);
}

std::vector<OpId> Probe::add(const Program& from, const Op& op, double cache_bytes) {
  QT_CHECK(!is_communication(op.kind) && executor_ == nullptr, "a probe for {}", name_of(op.kind));
  const auto is_integer = [](const Tensor& t) {
    return t.dtype == DType::kI32 || t.dtype == DType::kI64;
  };
  double bytes = 0;
  for (const auto* slots : {&op.inputs, &op.outputs})
    for (const TensorId id : *slots)
      if (id != kNone) bytes += static_cast<double>(from.tensor(id).bytes());
  const int copies = std::clamp(
      static_cast<int>(std::ceil(2.5 * cache_bytes / std::max(bytes, 1.0))), 1, kMostCopies);
  std::vector<OpId> ids;
  std::int64_t read = 0, written = 0, host = 0;
  for (int copy = 0; copy < copies; ++copy) {
    Op mine = op;
    mine.waits.clear();
    mine.workspace = kNone;
    mine.tag = {};
    if (auto* loss = std::get_if<LinearCrossEntropyAttrs>(&mine.attrs)) loss->group = -1;
    std::map<TensorId, TensorId> known;
    const auto place = [&](TensorId id, int slot) -> TensorId {
      if (id == kNone) return kNone;
      if (const auto found = known.find(id); found != known.end()) return found->second;
      const Tensor& like = from.tensor(id);
      if (is_integer(like) && !contains(op.outputs, id))
        return known[id] = integers(from, op, slot);
      const bool on_host = like.storage == Storage::kHost;
      Tensor tensor{"operand", like.shape, like.dtype,
                    on_host ? Storage::kHost : Storage::kActivation};
      const std::int64_t size = aligned(std::max<std::int64_t>(tensor.bytes(), 1), kAlign);
      const TensorId added = program_.add_tensor(std::move(tensor));
      if (on_host) {
        program_.tensor(added).offset = host;
        host += size;
      } else if (contains(op.outputs, id)) {
        written_.push_back({added, written});
        written += size;
      } else {
        read_.push_back({added, read});
        read += size;
      }
      return known[id] = added;
    };
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      mine.inputs[i] = place(op.inputs[i], static_cast<int>(i));
    for (std::size_t i = 0; i < op.outputs.size(); ++i)
      mine.outputs[i] = place(op.outputs[i], static_cast<int>(i));
    program_.ops.push_back(std::move(mine));
    Op& added = program_.ops.back();
    if (const std::int64_t size = backend_->scratch_bytes({program_, added}); size > 0) {
      added.workspace =
          program_.add_tensor({"scratch", Shape{(size + 1) / 2}, DType::kI16, Storage::kWorkspace});
      scratch_.push_back(added.workspace);
      scratch_bytes_ = std::max(scratch_bytes_, aligned(size, kAlign));
    }
    ids.push_back(static_cast<OpId>(program_.ops.size() - 1));
  }
  read_bytes_ = std::max(read_bytes_, read);
  written_bytes_ = std::max(written_bytes_, written);
  host_bytes_ = std::max(host_bytes_, host);
  return ids;
}

std::int64_t Probe::arena_bytes() const {
  return integer_bytes_ + read_bytes_ + written_bytes_ + scratch_bytes_;
}

Status Probe::start(World& world) {
  const std::int64_t read = integer_bytes_, written = read + read_bytes_,
                     scratch = written + written_bytes_;
  for (const Placed& p : read_) program_.tensor(p.tensor).offset = read + p.at;
  for (const Placed& p : written_) program_.tensor(p.tensor).offset = written + p.at;
  for (const TensorId t : scratch_) program_.tensor(t).offset = scratch;
  read_region_ =
      program_.add_tensor({"read", Shape{read_bytes_ / 2}, DType::kBF16, Storage::kActivation});
  program_.tensor(read_region_).offset = read;
  program_.target = backend_->target();
  program_.arena_bytes = std::max<std::int64_t>(arena_bytes(), kAlign);
  program_.host_bytes = host_bytes_;
  QT_ASSIGN(executor_, make_executor(program_, world));
  fill();
  return {};
}

// Random numbers in (-1, 1) as bf16: read as float32 they are numbers of the same size. Zeros would
// be faster than anything a real step computes with.
void Probe::fill() {
  PhiloxSequence random(1, 4);
  std::vector<bf16> block(1 << 22);
  for (bf16& x : block) x = bf16(static_cast<float>(2 * random.uniform() - 1));
  const std::int64_t count = read_bytes_ / 2;
  for (std::int64_t done = 0; done < count;) {
    const auto size = std::min<std::int64_t>(count - done, static_cast<std::int64_t>(block.size()));
    executor_->write(read_region_, 2 * done,
                     std::as_bytes(std::span(block).first(static_cast<std::size_t>(size))));
    done += size;
  }
  for (const auto& [key, tensor] : integers_) {
    const auto& [dtype, size, bound] = key;
    if (dtype == DType::kI64) {
      executor_->write_all<std::int64_t>(tensor, std::vector<std::int64_t>(index(size), 1));
      continue;
    }
    std::vector<std::int32_t> values(index(size),
                                     static_cast<std::int32_t>(std::max<std::int64_t>(-bound, 0)));
    if (bound > 0)
      for (std::int32_t& value : values)
        value = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(bound)));
    executor_->write_all<std::int32_t>(tensor, values);
  }
}

}  // namespace quintet
