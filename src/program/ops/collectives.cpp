#include "program/ops/collectives.h"

#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {
namespace {

const Tensor& only_input(const OpView& v) {
  return v.in(0);
}

std::int32_t group_in_attrs(const Op& op) {
  return std::get<CollectiveAttrs>(op.attrs).group;
}

}  // namespace

const OpDecl kAllReduceDecl = {
    .kind = OpKind::kAllReduce,
    .name = "all_reduce",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      return {{"", only_input(v).shape, only_input(v).dtype}};
    },
    .group = group_in_attrs,
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
    .group = group_in_attrs,
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
    .group = group_in_attrs,
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
