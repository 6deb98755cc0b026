// Rows of a table, and the scatter-add of their gradients.
#include "program/ops/embedding.h"

#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {

const OpDecl kEmbeddingDecl = {
    .kind = OpKind::kEmbedding,
    .name = "embedding",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor &table = v.in(embedding::kTable), &ids = v.in(embedding::kIds);
      QT_CHECK(table.shape.rank() == 2 && ids.dtype == DType::kI32, "table {}, ids {}",
               table.shape.str(), ids.shape.str());
      Shape out = ids.shape;
      out.append(table.shape.cols());
      return {{"", out, table.dtype}};
    },
    .vjp =
        [](VjpContext& c) {
          const TensorId grad = c.weight_grad(embedding::kTable);
          c.builder.emit(c.grad_name(embedding::kTable), OpKind::kEmbeddingBackward,
                         c.forward.attrs, {c.d_out(embedding::kOut), c.in(embedding::kIds), grad},
                         {grad});
        },
    .redo = Redo::kCheap,
};

const OpDecl kEmbeddingBackwardDecl = {
    .kind = OpKind::kEmbeddingBackward,
    .name = "embedding_backward",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      // The table's height is known only from the gradient it goes to.
      const Tensor &dy = v.in(embedding_backward::kDy), &out = v.out(embedding_backward::kDTable);
      QT_CHECK(dy.shape.cols() == out.shape.cols(), "dy {}, table {}", dy.shape.str(),
               out.shape.str());
      return {{"", out.shape, out.dtype}};
    },
};

}  // namespace quintet
