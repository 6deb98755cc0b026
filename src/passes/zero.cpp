#include "passes/zero.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/index.h"
#include "passes/buckets.h"
#include "passes/coded_weights.h"
#include "passes/rewriter.h"
#include "program/shards.h"

namespace quintet {
namespace {

Op make_op(OpKind kind, Attrs attrs, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
           Stream stream, Tag tag) {
  Op op;
  op.kind = kind;
  op.attrs = std::move(attrs);
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.stream = stream;
  op.tag = tag;
  return op;
}

class ZeroPass {
 public:
  ZeroPass(Program& program, const Grid& grid, const LayoutConfig& layout, bool measures)
      : program_(program),
        layout_(layout),
        measures_(measures),
        stage_(program.place.dp_size > 1 ? layout.zero : 0),
        rewriter_(program) {
    const Place& place = program.place;
    const std::vector<std::int32_t> dp = grid.ranks_along(place, true, false, false);
    const auto size = static_cast<std::int32_t>(dp.size());
    const std::int32_t group =
        layout.shard_group > 0 ? static_cast<std::int32_t>(layout.shard_group) : size;
    parts_ = stage_ > 0 ? group : 1;
    part_ = place.dp % parts_;
    replica_ = place.dp / parts_;
    dp_group_ = program.group_of("dp", dp);
    if (parts_ > 1) {
      std::vector<std::int32_t> shard, replicas;
      for (std::int32_t d = 0; d < size; ++d) {
        if (d / parts_ == replica_) shard.push_back(dp[index(d)]);
        if (d % parts_ == part_) replicas.push_back(dp[index(d)]);
      }
      shard_group_ = program.group_of("shard", shard);
      replica_group_ = program.group_of("replica", replicas);
    }
    tp_ranks_ = grid.ranks_along(place, false, true, false);
    pp_ranks_ = grid.ranks_along(place, false, false, true);
    tp_group_ = program.group_of("tp", tp_ranks_);
    // All ranks that split one copy of a bucket: its parts, each split over the tensor-parallel
    // ranks.
    for (std::int32_t d = 0; d < size; ++d) {
      if (parts_ == 1 ? d != place.dp : d / parts_ != replica_) continue;
      for (std::int32_t t = 0; t < grid.tp; ++t) {
        copy_ranks_.push_back(grid.rank_of(d, t, place.pp));
      }
    }
    loss_group_ = program.group_of("dp-pp", grid.ranks_along(place, true, false, true));
    QT_CHECK(!measures || grid.pp == 1, "the noise scale in a pipeline");
    std::vector<std::int32_t> world(static_cast<std::size_t>(grid.size()));
    std::iota(world.begin(), world.end(), 0);
    if (measures) world_group_ = program.group_of("world", world);
  }

  void run() {
    find_segments();
    buckets_ = make_buckets(program_, parts_, layout_);
    if (measures_) make_room_for_squares();
    if (stage_ == 3 && layout_.gather_fp8)
      coded_.emplace(program_, rewriter_, buckets_, shard_group_, part_);
    std::vector<Shard> shards;
    for (const Bucket& bucket : buckets_) shards.push_back(describe(bucket));
    if (coded_) coded_->agree(buckets_, shards);
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const Bucket& bucket = buckets_[i];
      Shard& shard = shards[i];
      if (stage_ == 3 && bucket.parts > 1) gather_where_used(bucket, shard);
      if (bucket.grads != kNone) {
        reduce_gradients(bucket, shard);
        settle_gradient(bucket, shard);
      }
      program_.shards.push_back(std::move(shard));
    }
    sum_label_count();
    sum_loss();
    if (measures_) sum_squares();
    rewriter_.apply();
  }

 private:
  static Tag tag(Phase phase, Method method, std::int32_t unit = -1,
                 std::int32_t micro_batch = -1) {
    return {.phase = phase,
            .method = method,
            .unit = static_cast<std::int16_t>(unit),
            .micro_batch = micro_batch};
  }
  CollectiveAttrs over(std::int32_t group, Shape shape = {}) const {
    return {.group = group,
            .group_size = static_cast<std::int32_t>(program_.groups[index(group)].ranks.size()),
            .reduction = Reduction::kSum,
            .shape = shape};
  }

  // A segment is a run of ops of one unit, one micro-batch and one direction: what a bucket is
  // gathered for, and after which its gradient is complete.
  void find_segments() {
    segment_of_.assign(program_.ops.size(), -1);
    std::tuple<std::int32_t, std::int32_t, bool> current{-1, -1, false};
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Tag& t = program_.ops[i].tag;
      if (t.unit >= 0 && t.micro_batch >= 0) {
        const std::tuple<std::int32_t, std::int32_t, bool> here{t.unit, t.micro_batch,
                                                                t.phase == Phase::kForward};
        if (segment_begin_.empty() || here != current) segment_begin_.push_back(i);
        current = here;
      }
      segment_of_[i] = static_cast<std::int32_t>(segment_begin_.size()) - 1;
    }
  }
  // Where segment s begins; past the last one, the end of the program.
  std::size_t begin_of(std::int64_t segment) const {
    return segment >= static_cast<std::int64_t>(segment_begin_.size())
               ? rewriter_.end()
               : segment_begin_[index(std::max<std::int64_t>(segment, 0))];
  }

  // Who holds what of a bucket, before anything is inserted.
  Shard describe(const Bucket& bucket) {
    const Place& place = program_.place;
    Shard shard;
    shard.name = bucket.name;
    shard.size = bucket.part_size();
    const bool sharded = bucket.parts > 1;
    const std::int64_t begin = sharded ? part_ * shard.size : 0;
    shard.pieces = pieces_of(program_, bucket, begin, begin + shard.size);
    for (ShardPiece& piece : shard.pieces) {
      const Unit& unit = program_.units[index(piece.unit)];
      const bool first_copy = sharded ? replica_ == 0 : place.dp == 0;
      piece.counted = first_copy && (unit.weights[index(piece.weight)].split || place.tp == 0) &&
                      unit.stages.front() == place.pp;
    }
    shard.group = program_.group_of("copy", sharded ? copy_ranks_ : tp_ranks_);
    shard.whole_pieces = pieces_of(program_, bucket, 0, bucket.size);
    if (!sharded) {
      shard.working = bucket.params;
      shard.grad = bucket.grads;
      return shard;
    }
    const DType dtype = program_.tensor(bucket.params).dtype;
    if (stage_ == 3) {
      shard.working = program_.add_tensor(
          Tensor{bucket.name + ".params.part", Shape{shard.size}, dtype, Storage::kParameter});
    } else {
      shard.working = program_.add_view(bucket.name + ".params.part", bucket.params,
                                        begin * size_of(dtype), Shape{shard.size});
      shard.whole = bucket.params;
      shard.gather_group = shard_group_;
    }
    if (bucket.grads == kNone) return shard;
    shard.grad =
        program_.add_tensor(Tensor{bucket.name + ".grads.part", Shape{shard.size},
                                   program_.tensor(bucket.grads).dtype, Storage::kGradient});
    return shard;
  }

  // The same view of another tensor of the bucket's size.
  TensorId view_in(TensorId view, TensorId base, std::map<TensorId, TensorId>& made) {
    const auto [at, is_new] = made.try_emplace(view, kNone);
    if (is_new) {
      const Tensor& t = program_.tensor(view);
      at->second = program_.add_view(t.name, base, t.base_offset, Shape(t.shape));
    }
    return at->second;
  }

  // --- Parameters (stage 3)
  // -------------------------------------------------------------------------

  void gather_where_used(const Bucket& bucket, const Shard& shard) {
    const TensorId codes = coded_ ? coded_->codes(bucket) : kNone;
    const TensorId read = codes == kNone ? bucket.params : codes;
    // 1. The segments that read the bucket. What would have to be gathered again almost at once is
    // kept: at
    //    the turn from forward to backward the last layers are.
    std::vector<std::pair<std::int64_t, std::int64_t>> uses;  // first and last segment
    std::vector<std::size_t> readers;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const auto& inputs = program_.ops[i].inputs;
      if (std::none_of(inputs.begin(), inputs.end(),
                       [&](TensorId t) { return t != kNone && program_.base_of(t) == read; })) {
        continue;
      }
      readers.push_back(i);
      const std::int64_t segment = segment_of_[i];
      if (!uses.empty() && segment - uses.back().second <= layout_.prefetch + 2) {
        uses.back().second = segment;
      } else {
        uses.emplace_back(segment, segment);
      }
    }
    // 2. One gather for each use, some segments ahead, into memory that is free from there on.
    const DType dtype = program_.tensor(read).dtype;
    auto reader = readers.begin();
    for (const auto& [first, last] : uses) {
      const TensorId whole = program_.add_tensor(
          Tensor{bucket.name + ".gathered", Shape{bucket.size}, dtype, Storage::kComm});
      const std::size_t position = begin_of(first - layout_.prefetch);
      const Tag& user = program_.ops[*reader].tag;
      Tag about = tag(user.phase, Method::kCompute, bucket.units.front(), user.micro_batch);
      const TensorId part =
          codes == kNone ? shard.working : coded_->insert_codes(bucket, shard, position, about);
      about.method = Method::kData;
      Op gather = make_op(OpKind::kAllGather, over(shard_group_, Shape{bucket.size}), {part},
                          {whole}, Stream::kDataComm, about);
      if (const OpId before = rewriter_.last_compute_before(position); before >= 0) {
        gather.waits.push_back(before);
      }
      rewriter_.insert(position, std::move(gather));
      std::map<TensorId, TensorId> views;
      for (; reader != readers.end() && segment_of_[*reader] <= last; ++reader) {
        for (TensorId& t : program_.ops[*reader].inputs) {
          if (t != kNone && program_.base_of(t) == read) t = view_in(t, whole, views);
        }
      }
    }
    // From now on the whole is nowhere but in what was gathered.
    for (const std::int32_t unit : bucket.units) program_.units[index(unit)].params = kNone;
  }

  // --- Gradients
  // ------------------------------------------------------------------------------------

  // Inserts what sums a bucket's gradient over the data-parallel ranks into shard.grad.
  void reduce_gradients(const Bucket& bucket, const Shard& shard) {
    std::map<std::int32_t, std::vector<std::size_t>> writers;  // by micro-batch, or all under 0
    const bool each_micro_batch = stage_ >= 2 && bucket.parts > 1;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      for (const TensorId t : program_.ops[i].outputs) {
        if (t == kNone || program_.base_of(t) != bucket.grads) continue;
        auto& list = writers[each_micro_batch ? program_.ops[i].tag.micro_batch : 0];
        if (list.empty() || list.back() != i) list.push_back(i);
      }
    }
    // In the order in which they are complete, which is the order of the collectives on every rank.
    std::vector<const std::vector<std::size_t>*> order;
    for (const auto& [micro_batch, list] : writers) order.push_back(&list);
    std::sort(order.begin(), order.end(),
              [](const auto* a, const auto* b) { return a->back() < b->back(); });

    bool first = true;
    for (const std::vector<std::size_t>* list : order) {
      TensorId whole = bucket.grads;
      if (each_micro_batch) whole = own_gradient(bucket, *list);
      if (measures_) measure(bucket, whole, *list);
      reduce(bucket, shard, whole, list->back(), first);
      first = false;
    }
  }

  // Gives the ops of one micro-batch a gradient tensor of their own.
  TensorId own_gradient(const Bucket& bucket, const std::vector<std::size_t>& writers) {
    const Tensor& like = program_.tensor(bucket.grads);
    const TensorId whole = program_.add_tensor(
        Tensor{fmt::format("{}@{}", like.name, program_.ops[writers.front()].tag.micro_batch),
               like.shape, like.dtype, Storage::kGradient});
    std::map<TensorId, TensorId> views;
    for (const std::size_t i : writers) {
      for (auto* slots : {&program_.ops[i].inputs, &program_.ops[i].outputs}) {
        for (TensorId& t : *slots) {
          if (t != kNone && program_.base_of(t) == bucket.grads) t = view_in(t, whole, views);
        }
      }
    }
    return whole;
  }

  void reduce(const Bucket& bucket, const Shard& shard, TensorId whole, std::size_t last_writer,
              bool first) {
    const Tag& from = program_.ops[last_writer].tag;
    const std::size_t position = last_writer + 1;
    const std::int64_t element = size_of(program_.tensor(whole).dtype);
    for (const Run& gap : gaps_of(program_, bucket)) {
      const TensorId view = program_.add_view(bucket.name + ".gap", whole, gap.begin * element,
                                              Shape{gap.end - gap.begin});
      rewriter_.insert(position,
                       make_op(OpKind::kZero, NoAttrs{}, {}, {view}, Stream::kCompute, from));
    }
    if (dp_group_ < 0) return;
    const Tag data = tag(Phase::kBackward, Method::kData, bucket.units.front(),
                         stage_ >= 2 ? from.micro_batch : -1);
    if (bucket.parts == 1) {
      rewriter_.insert(position, make_op(OpKind::kAllReduce, over(dp_group_), {whole}, {whole},
                                         Stream::kDataComm, data));
      return;
    }
    TensorId part = shard.grad;
    if (!first) {
      part = program_.add_tensor(Tensor{bucket.name + ".grads.more", Shape{shard.size},
                                        program_.tensor(whole).dtype, Storage::kComm});
    }
    const OpId scatter = rewriter_.insert(
        position, make_op(OpKind::kReduceScatter, over(shard_group_, Shape{shard.size}), {whole},
                          {part}, Stream::kDataComm, data));
    // Some segments later it must be done: until then its whole gradient keeps its memory.
    const std::size_t due = begin_of(std::int64_t{segment_of_[last_writer]} + 2 + layout_.prefetch);
    rewriter_.wait_from(due, scatter);
    if (!first) {
      rewriter_.insert(due, make_op(OpKind::kAdd, NoAttrs{}, {shard.grad, part}, {shard.grad},
                                    Stream::kCompute, from));
    }
  }

  // What is left to sum at the end of the step, on the gradient as it will be used.
  void settle_gradient(const Bucket& bucket, const Shard& shard) {
    const std::size_t end = rewriter_.end();
    const std::int32_t unit = bucket.units.front();
    const auto all_reduce = [&](std::int32_t group, TensorId t, Method method, Stream stream) {
      rewriter_.insert(end, make_op(OpKind::kAllReduce, over(group), {t}, {t}, stream,
                                    tag(Phase::kBackward, method, unit)));
    };
    if (bucket.parts > 1 && replica_group_ >= 0) {
      all_reduce(replica_group_, shard.grad, Method::kData, Stream::kDataComm);
    }
    // Weights that tensor-parallel ranks have in common: each has seen its own tokens only.
    if (tp_group_ >= 0) {
      for (const Run& run : common_runs(shard)) {
        const std::int64_t element = size_of(program_.tensor(shard.grad).dtype);
        const TensorId view = program_.add_view(bucket.name + ".common", shard.grad,
                                                run.begin * element, Shape{run.end - run.begin});
        all_reduce(tp_group_, view, Method::kTensor, Stream::kTensorComm);
      }
    }
    // Weights that several stages use: the gradients of all of them belong together.
    const std::vector<std::int32_t>& stages = program_.units[index(unit)].stages;
    if (stages.size() > 1) {
      std::vector<std::int32_t> ranks;
      for (const std::int32_t stage : stages) ranks.push_back(pp_ranks_[index(stage)]);
      all_reduce(program_.group_of(bucket.name, ranks), shard.grad, Method::kPipeline,
                 Stream::kDataComm);
    }
  }

  // Runs of a shard made of weights that are not split; neighbours are joined over the gaps between
  // them.
  std::vector<Run> common_runs(const Shard& shard) const {
    std::vector<Run> runs;
    bool open = false;
    for (const ShardPiece& piece : shard.pieces) {
      const bool split = program_.units[index(piece.unit)].weights[index(piece.weight)].split;
      if (split) {
        open = false;
      } else if (open) {
        runs.back().end = piece.offset + piece.count;
      } else {
        runs.push_back({piece.offset, piece.offset + piece.count});
        open = true;
      }
    }
    return runs;
  }

  // --- The noise scale
  // -------------------------------------------------------------------------------------

  // Elements of a bucket's gradient that follow each other; `common`: tensor-parallel ranks each
  // have a part of their sum.
  struct MeasuredRun {
    std::int64_t begin = 0, end = 0;
    bool common = false;
  };
  std::vector<MeasuredRun> measured_runs(const Bucket& bucket) const {
    std::vector<MeasuredRun> runs;
    for (const ShardPiece& piece : pieces_of(program_, bucket, 0, bucket.size)) {
      const Weight& weight = program_.units[index(piece.unit)].weights[index(piece.weight)];
      const bool common = tp_group_ >= 0 && !weight.split;
      const std::int64_t end = piece.offset + piece.count;
      if (!runs.empty() && runs.back().end == piece.offset && runs.back().common == common) {
        runs.back().end = end;
      } else {
        runs.push_back({piece.offset, end, common});
      }
    }
    return runs;
  }

  void make_room_for_squares() {
    std::int64_t count = 0;
    for (const Bucket& bucket : buckets_) count += std::ssize(measured_runs(bucket));
    squares_ = program_.add_tensor(
        Tensor{"micro_squares", Shape{count}, DType::kF32, Storage::kActivation});
  }

  // The squared norm of a bucket's gradient when the first micro-batch has written it and no other
  // has added to it; `writers` are those of all micro-batches, or of one.
  void measure(const Bucket& bucket, TensorId whole, const std::vector<std::size_t>& writers) {
    const auto last = std::find_if(writers.rbegin(), writers.rend(), [&](std::size_t i) {
      return program_.ops[i].tag.micro_batch == 0;
    });
    if (last == writers.rend()) return;
    const Tag from = program_.ops[*last].tag;
    const DType dtype = program_.tensor(whole).dtype;
    const auto insert = [&](OpKind kind, Attrs attrs, std::vector<TensorId> inputs, TensorId output,
                            Stream stream, Tag tag) {
      rewriter_.insert(*last + 1,
                       make_op(kind, std::move(attrs), std::move(inputs), {output}, stream, tag));
    };
    for (const auto& [begin, end, common] : measured_runs(bucket)) {
      const Shape shape{end - begin};
      TensorId run =
          program_.add_view(bucket.name + ".micro", whole, begin * size_of(dtype), Shape(shape));
      const TensorId square =
          program_.add_view(bucket.name + ".micro_square", squares_, 4 * measured_++, Shape{1});
      if (common) {
        const TensorId sum = program_.add_tensor(
            Tensor{bucket.name + ".micro_sum", Shape(shape), dtype, Storage::kComm});
        insert(OpKind::kAllReduce, over(tp_group_), {run}, sum, Stream::kTensorComm,
               tag(Phase::kBackward, Method::kTensor, from.unit, from.micro_batch));
        run = sum;
      }
      if (common && program_.place.tp != 0) {
        insert(OpKind::kZero, NoAttrs{}, {}, square, Stream::kCompute, from);  // the first counts
      } else {
        insert(OpKind::kSquaredNorm, NoAttrs{}, {run}, square, Stream::kCompute, from);
      }
    }
  }

  void sum_squares() {
    const TensorId total = program_.io.micro_square =
        program_.add_tensor(Tensor{"micro_square", Shape{1}, DType::kF32, Storage::kIo});
    rewriter_.insert(rewriter_.end(),
                     make_op(OpKind::kSum, NoAttrs{}, {squares_}, {total}, Stream::kCompute,
                             tag(Phase::kUpdate, Method::kCompute)));
    if (world_group_ < 0) return;
    rewriter_.insert(rewriter_.end(),
                     make_op(OpKind::kAllReduce, over(world_group_), {total}, {total},
                             Stream::kDataComm, tag(Phase::kUpdate, Method::kData)));
  }

  // --- The loss
  // -------------------------------------------------------------------------------------

  void sum_label_count() {
    if (dp_group_ < 0) return;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (program_.ops[i].kind != OpKind::kCountLabels) continue;
      const TensorId count = program_.ops[i].outputs[0];
      rewriter_.insert(i + 1, make_op(OpKind::kAllReduce, over(dp_group_), {count}, {count},
                                      Stream::kDataComm, tag(Phase::kSetup, Method::kData)));
    }
  }

  // Every rank learns the loss: the sum over the data-parallel ranks' shares, from the stage that
  // has the head.
  void sum_loss() {
    const TensorId loss = program_.io.loss;
    const bool has_head = std::any_of(program_.ops.begin(), program_.ops.end(), [](const Op& op) {
      return op.kind == OpKind::kLinearCrossEntropy;
    });
    const std::size_t end = rewriter_.end();
    if (!has_head) {
      rewriter_.insert(end, make_op(OpKind::kZero, NoAttrs{}, {}, {loss}, Stream::kCompute,
                                    tag(Phase::kUpdate, Method::kCompute)));
    }
    if (loss_group_ < 0) return;
    rewriter_.insert(end, make_op(OpKind::kAllReduce, over(loss_group_), {loss}, {loss},
                                  Stream::kDataComm, tag(Phase::kUpdate, Method::kData)));
  }

  Program& program_;
  const LayoutConfig& layout_;
  const bool measures_;  // the noise scale
  const std::int64_t stage_;
  Rewriter rewriter_;
  std::int32_t parts_ = 1, part_ = 0, replica_ = 0;
  std::int32_t dp_group_ = -1, shard_group_ = -1, replica_group_ = -1, tp_group_ = -1,
               loss_group_ = -1, world_group_ = -1;
  TensorId squares_ = kNone;  // of measured runs, and how many there are so far
  std::int64_t measured_ = 0;
  std::vector<std::int32_t> tp_ranks_, pp_ranks_, copy_ranks_;
  std::vector<std::int32_t> segment_of_;  // by op: the segment it is in, or the one before it
  std::vector<std::size_t> segment_begin_;
  std::vector<Bucket> buckets_;
  std::optional<CodedWeights> coded_;  // where codes are gathered instead of weights
};

}  // namespace

void zero(Program& program, const Grid& grid, const LayoutConfig& layout, bool measure_noise) {
  ZeroPass(program, grid, layout, measure_noise).run();
}

void gather_updated_parameters(Program& program) {
  for (const Shard& shard : program.shards) {
    if (shard.whole == kNone) continue;
    const Shape& shape = program.tensor(shard.whole).shape;
    const std::int32_t group = shard.gather_group;
    const CollectiveAttrs attrs{
        .group = group,
        .group_size = static_cast<std::int32_t>(program.groups[index(group)].ranks.size()),
        .reduction = Reduction::kSum,
        .shape = shape};
    program.ops.push_back(make_op(OpKind::kAllGather, attrs, {shard.working}, {shard.whole},
                                  Stream::kDataComm,
                                  {.phase = Phase::kUpdate,
                                   .method = Method::kData,
                                   .unit = unit_of(shard),
                                   .micro_batch = -1}));
  }
}

}  // namespace quintet
