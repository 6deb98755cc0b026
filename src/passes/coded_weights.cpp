#include "passes/coded_weights.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/index.h"
#include "program/ops/collectives.h"
#include "program/ops/quantize.h"

namespace quintet {
namespace {

namespace qw = quantize_weights;

// Bytes on which products want the addresses of codes and of units, and kernels those of values.
constexpr std::int64_t kAddressMultiple = 16;

Op compute_op(OpKind kind, Attrs attrs, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
              Tag tag) {
  Op op;
  op.kind = kind;
  op.attrs = std::move(attrs);
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.tag = tag;
  return op;
}

}  // namespace

CodedWeights::CodedWeights(Program& program, Rewriter& rewriter, const std::vector<Bucket>& buckets,
                           std::int32_t group, std::int32_t part)
    : program_(program), rewriter_(rewriter), group_(group), part_(part) {
  find_runs(buckets);
  if (coded_.empty()) return;
  units_ = make_room("unit", DType::kF32, &Coded::matrices, false);
  values_ = make_room("value", program.tensor(coded_.begin()->first).dtype, &Coded::others, true);
  read_codes();
}

TensorId CodedWeights::codes(const Bucket& bucket) const {
  const auto at = coded_.find(bucket.params);
  return at == coded_.end() ? kNone : at->second.codes;
}

bool CodedWeights::makes_codes(const Op& op) const {
  return op.kind == OpKind::kQuantizeWeights &&
         coded_.contains(program_.base_of(op.inputs[qw::kX]));
}

std::int64_t CodedWeights::first_element(TensorId view) const {
  const Tensor& t = program_.tensor(view);
  return t.base_offset / size_of(t.dtype);
}

void CodedWeights::find_runs(const std::vector<Bucket>& buckets) {
  for (const Bucket& bucket : buckets)
    if (bucket.parts > 1) coded_[bucket.params];
  for (const Op& op : program_.ops) {
    for (const TensorId t : op.inputs) {
      const auto at = t == kNone ? coded_.end() : coded_.find(program_.base_of(t));
      if (at == coded_.end()) continue;
      Coded& coded = at->second;
      Run& run = (makes_codes(op) ? coded.matrices : coded.others)[first_element(t)];
      run.size = std::max(run.size, program_.tensor(t).shape.numel());
    }
  }
  std::erase_if(coded_, [](const auto& bucket) { return bucket.second.matrices.empty(); });
  for (const Bucket& bucket : buckets) {
    const auto at = coded_.find(bucket.params);
    if (at == coded_.end()) continue;
    at->second.codes = program_.add_tensor(
        Tensor{bucket.name + ".codes", Shape{bucket.size}, DType::kE4M3, Storage::kComm});
  }
}

// A tensor in which each run has a place, for one element or for as many as it has.
TensorId CodedWeights::make_room(const char* name, DType dtype, Runs Coded::*runs, bool of_values) {
  std::int64_t bytes = 0;
  std::vector<std::pair<Run*, std::int64_t>> places;
  for (auto& [params, coded] : coded_) {
    for (auto& [first, run] : coded.*runs) {
      places.emplace_back(&run, bytes);
      const std::int64_t size = (of_values ? run.size : 1) * size_of(dtype);
      bytes += (size + kAddressMultiple - 1) / kAddressMultiple * kAddressMultiple;
    }
  }
  if (bytes == 0) return kNone;
  const TensorId all = program_.add_tensor(
      Tensor{fmt::format("{}s", name), Shape{bytes / size_of(dtype)}, dtype, Storage::kComm});
  for (const auto& [run, offset] : places)
    run->agreed = program_.add_view(name, all, offset, Shape{of_values ? run->size : 1});
  return all;
}

void CodedWeights::read_codes() {
  std::map<TensorId, TensorId> instead, codes_of;  // of what ops read; of views that are matrices
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    Op& op = program_.ops[i];
    if (makes_codes(op)) {
      bool turns = false;
      for (int m = 0; m < qw::count(op); ++m) {
        TensorId& x = op.inputs[index(qw::in(m, qw::kX))];
        TensorId& codes = op.outputs[index(qw::out(m, quantize::kCodes))];
        TensorId& unit = op.outputs[index(qw::out(m, quantize::kUnit))];
        const Coded& coded = coded_.at(program_.base_of(x));
        const std::int64_t first = first_element(x);
        QT_CHECK(first % kAddressMultiple == 0, "{} begins at element {} of a bucket",
                 program_.tensor(x).name, first);
        const auto [at, is_new] = codes_of.try_emplace(x, kNone);
        if (is_new) {
          const Tensor& like = program_.tensor(x);
          at->second =
              program_.add_view(like.name + ".codes", coded.codes, first, Shape(like.shape));
        }
        x = at->second;
        instead[std::exchange(codes, kNone)] = x;
        const TensorId agreed = coded.matrices.at(first).agreed;
        instead[std::exchange(unit, kNone)] = agreed;
        op.inputs[index(qw::in(m, qw::kKnownUnit))] = agreed;
        turns = turns || op.outputs[index(qw::out(m, quantize::kTransposed))] != kNone;
      }
      if (!turns) rewriter_.remove(i);
      continue;
    }
    for (TensorId& t : op.inputs) {
      if (t == kNone) continue;
      const auto bucket = coded_.find(program_.base_of(t));
      if (bucket != coded_.end() && !instead.contains(t)) {
        const Tensor& like = program_.tensor(t);
        instead[t] = program_.add_view(like.name, bucket->second.others.at(first_element(t)).agreed,
                                       0, Shape(like.shape));
      }
      if (const auto at = instead.find(t); at != instead.end()) t = at->second;
    }
  }
}

std::vector<CodedWeights::Piece> CodedWeights::pieces_of(const Runs& runs,
                                                         const Shard& shard) const {
  const std::int64_t begin = part_ * shard.size, end = begin + shard.size;
  std::vector<Piece> pieces;
  for (const auto& [first, run] : runs) {
    const std::int64_t from = std::max(begin, first), to = std::min(end, first + run.size);
    if (from < to) pieces.push_back({run.agreed, from - begin, from - first, to - from});
  }
  return pieces;
}

TensorId CodedWeights::view(TensorId flat, std::int64_t first, std::int64_t size) {
  const Tensor& t = program_.tensor(flat);
  return program_.add_view(t.name, flat, first * size_of(t.dtype), Shape{size});
}

void CodedWeights::agree(const std::vector<Bucket>& buckets, const std::vector<Shard>& shards) {
  const Tag tag{.phase = Phase::kSetup, .method = Method::kCompute, .unit = -1, .micro_batch = -1};
  const auto insert = [&](Op op) { rewriter_.insert(0, std::move(op)); };
  // What a rank has nothing of: a unit below all others, and zeros to add, which change no value
  // (but the sign of a zero).
  for (const TensorId t : {units_, values_})
    if (t != kNone) insert(compute_op(OpKind::kZero, NoAttrs{}, {}, {t}, tag));
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const auto coded = coded_.find(buckets[i].params);
    if (coded == coded_.end()) continue;
    const TensorId part = shards[i].working;
    std::vector<TensorId> inputs, outputs;
    for (const Piece& piece : pieces_of(coded->second.matrices, shards[i])) {
      inputs.insert(inputs.end(), {view(part, piece.in_part, piece.size), kNone});
      outputs.insert(outputs.end(), {kNone, kNone, piece.agreed});
    }
    if (!inputs.empty())
      insert(compute_op(OpKind::kQuantizeWeights, QuantizeAttrs{}, std::move(inputs),
                        std::move(outputs), tag));
    for (const Piece& piece : pieces_of(coded->second.others, shards[i])) {
      // The zeros there, and the sum: two tensors, else the one would be taken for an addend that
      // nothing has written (drop_first_addends).
      const TensorId zeros = view(piece.agreed, piece.in_run, piece.size);
      const TensorId sum = view(piece.agreed, piece.in_run, piece.size);
      insert(compute_op(OpKind::kAdd, NoAttrs{}, {view(part, piece.in_part, piece.size), zeros},
                        {sum}, tag));
    }
  }
  const auto reduce = [&](TensorId t, Reduction reduction) {
    if (t == kNone) return;
    const CollectiveAttrs attrs{
        .group = group_,
        .group_size = static_cast<std::int32_t>(program_.groups[index(group_)].ranks.size()),
        .reduction = reduction,
        .shape = {}};
    Op op = compute_op(OpKind::kAllReduce, attrs, {t}, {t}, tag);
    op.stream = Stream::kDataComm;
    op.tag.method = Method::kData;
    insert(std::move(op));
  };
  reduce(units_, Reduction::kMax);
  reduce(values_, Reduction::kSum);
}

TensorId CodedWeights::insert_codes(const Bucket& bucket, const Shard& shard, std::size_t position,
                                    Tag tag) {
  const TensorId codes = program_.add_tensor(
      Tensor{bucket.name + ".codes.part", Shape{shard.size}, DType::kE4M3, Storage::kComm});
  std::vector<TensorId> inputs, outputs;
  std::int64_t coded = 0;
  for (const Piece& piece : pieces_of(coded_.at(bucket.params).matrices, shard)) {
    inputs.insert(inputs.end(), {view(shard.working, piece.in_part, piece.size), piece.agreed});
    outputs.insert(outputs.end(), {view(codes, piece.in_part, piece.size), kNone, kNone});
    coded += piece.size;
  }
  if (coded < shard.size)  // between the matrices and behind them
    rewriter_.insert(position, compute_op(OpKind::kZero, NoAttrs{}, {}, {codes}, tag));
  if (!inputs.empty())
    rewriter_.insert(position, compute_op(OpKind::kQuantizeWeights, QuantizeAttrs{},
                                          std::move(inputs), std::move(outputs), tag));
  return codes;
}

}  // namespace quintet
