#include "base/check.h"
#include "program/op_decl.h"
#include "runtime/cuda/kernel.h"
#include "runtime/kernel_list.h"

namespace quintet::cuda {

// Each is defined in the file of its kind.
#define QT_DECLARE(kind, name) void name(const OpContext&);
QT_FOR_EACH_KERNEL(QT_DECLARE)
#undef QT_DECLARE

Kernel kernel_of(OpKind kind) {
  if (is_communication(kind)) return nullptr;
  switch (kind) {
#define QT_CASE(kind, name) \
  case OpKind::kind:        \
    return name;
    QT_FOR_EACH_KERNEL(QT_CASE)
#undef QT_CASE
    default:
      QT_CHECK(false, "no CUDA kernel for op kind {}", static_cast<int>(kind));
  }
}

}  // namespace quintet::cuda
