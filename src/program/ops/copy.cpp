// Copies a tensor, as it is: between the device and host memory.
#include "base/check.h"
#include "program/op_decl.h"

namespace quintet {

const OpDecl kCopyDecl = {
    .kind = OpKind::kCopy,
    .name = "copy",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      QT_CHECK(v.has_in(0), "copy needs a tensor to copy");
      return {{"", v.in(0).shape, v.in(0).dtype}};
    },
};

}  // namespace quintet
