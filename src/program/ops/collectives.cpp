#include "program/ops/collectives.h"

#include <algorithm>

#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {
namespace {

const Tensor& only_input(const OpView& v) {
  return v.in(0);
}

// The CPU's algorithms receive the parts of all members before they add them up, in the order of
// the group: the same bits on every member and in every run. A device's library needs nothing from
// us.
std::int64_t reduction_scratch(const OpView& v, const Target& target, bool small_in_one_round) {
  if (target.device != Device::kCpu) return 0;
  const auto& attrs = v.attrs<CollectiveAttrs>();
  const Tensor& x = only_input(v);
  if (small_in_one_round && x.bytes() <= kOneRoundBytes) return attrs.group_size * x.bytes();
  // Equal parts, one for each member; the last may be padded.
  const std::int64_t part = (x.shape.numel() + attrs.group_size - 1) / attrs.group_size;
  return attrs.group_size * part * size_of(x.dtype);
}

}  // namespace

std::int64_t all_reduce_bytes_sent(std::int64_t count, std::int64_t element, std::int64_t members,
                                   std::int64_t index) {
  if (count * element <= kOneRoundBytes) return (members - 1) * count * element;
  const std::int64_t part = (count + members - 1) / members;
  const std::int64_t begin = std::min(index * part, count), mine = std::min(part, count - begin);
  return (count - mine) * element +
         (members - 1) * mine * element;  // everyone's parts, then my sum
}

std::int64_t bytes_sent_by(const Program& program, const Op& op) {
  const OpView v{program, op};
  if (const auto* loss = std::get_if<LinearCrossEntropyAttrs>(&op.attrs);
      loss != nullptr && loss->group >= 0) {
    // Three numbers a token, to everybody, a chunk at a time.
    namespace lce = linear_cross_entropy;
    const auto members = static_cast<std::int64_t>(
        program.groups[static_cast<std::size_t>(loss->group)].ranks.size());
    const std::int64_t tokens = v.in(lce::kX).shape.rows(), chunk = std::min(loss->chunk, tokens);
    const std::int64_t chunks = (tokens + chunk - 1) / chunk;
    return (members - 1) * 4 * (tokens + 2 * chunk * chunks);
  }
  if (op.kind == OpKind::kSend || op.kind == OpKind::kCopy) return v.in(0).bytes();
  if (!is_communication(op.kind) || op.kind == OpKind::kRecv) return 0;
  const auto& attrs = v.attrs<CollectiveAttrs>();
  const Group& group = program.groups[static_cast<std::size_t>(attrs.group)];
  const auto members = static_cast<std::int64_t>(group.ranks.size());
  if (op.kind == OpKind::kAllGather) return (members - 1) * v.in(0).bytes();
  if (op.kind == OpKind::kReduceScatter) return (members - 1) * v.out(0).bytes();
  return all_reduce_bytes_sent(v.in(0).shape.numel(), size_of(v.in(0).dtype), members, group.index);
}

const OpDecl kAllReduceDecl = {
    .kind = OpKind::kAllReduce,
    .name = "all_reduce",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      return {{"", only_input(v).shape, only_input(v).dtype}};
    },
    .workspace = [](const OpView& v,
                    const Target& target) { return reduction_scratch(v, target, true); },
    .in_place = {{{all_reduce::kY, all_reduce::kX}, {}}},
};

const OpDecl kAllGatherDecl = {
    .kind = OpKind::kAllGather,
    .name = "all_gather",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const auto& attrs = v.attrs<CollectiveAttrs>();
      const Tensor& x = only_input(v);
      QT_CHECK(attrs.shape.numel() == x.shape.numel() * attrs.group_size,
               "{} parts of {} gathered into {}", attrs.group_size, x.shape.str(),
               attrs.shape.str());
      return {{"", attrs.shape, x.dtype}};
    },
    .vjp =
        [](VjpContext& c) {
          auto attrs = std::get<CollectiveAttrs>(c.forward.attrs);
          attrs.shape = c.builder.program().tensor(c.in(all_gather::kX)).shape;
          c.contribute(all_gather::kX,
                       c.builder.emit_one(c.grad_name(all_gather::kX), OpKind::kReduceScatter,
                                          attrs, {c.d_out(all_gather::kY)}));
        },
    .redo = Redo::kCheap,
};

const OpDecl kReduceScatterDecl = {
    .kind = OpKind::kReduceScatter,
    .name = "reduce_scatter",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const auto& attrs = v.attrs<CollectiveAttrs>();
      const Tensor& x = only_input(v);
      QT_CHECK(x.shape.numel() == attrs.shape.numel() * attrs.group_size,
               "{} scattered into {} parts {}", x.shape.str(), attrs.group_size, attrs.shape.str());
      return {{"", attrs.shape, x.dtype}};
    },
    .vjp =
        [](VjpContext& c) {
          auto attrs = std::get<CollectiveAttrs>(c.forward.attrs);
          attrs.shape = c.builder.program().tensor(c.in(reduce_scatter::kX)).shape;
          c.contribute(reduce_scatter::kX,
                       c.builder.emit_one(c.grad_name(reduce_scatter::kX), OpKind::kAllGather,
                                          attrs, {c.d_out(reduce_scatter::kY)}));
        },
    .workspace = [](const OpView& v,
                    const Target& target) { return reduction_scratch(v, target, false); },
    .redo = Redo::kFull,
};

const OpDecl kSendDecl = {
    .kind = OpKind::kSend,
    .name = "send",
    .infer = [](const OpView&) -> std::vector<TensorSpec> { return {}; },
};

const OpDecl kRecvDecl = {
    .kind = OpKind::kRecv,
    .name = "recv",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const auto& attrs = v.attrs<TransferAttrs>();
      return {{"", attrs.shape, attrs.dtype}};
    },
};

}  // namespace quintet
