#include "program/program.h"

#include <algorithm>

#include "base/check.h"

namespace quintet {

TensorId Program::add_view(std::string name, TensorId of, std::int64_t byte_offset, Shape shape) {
  const Tensor& whole = tensor(of);
  const TensorId base = base_of(of);
  Tensor view;
  view.name = std::move(name);
  view.shape = shape;
  view.dtype = whole.dtype;
  view.storage = whole.storage;
  view.base = base;
  view.base_offset = whole.base_offset + byte_offset;
  QT_CHECK(view.base_offset >= 0 && view.base_offset + view.bytes() <= tensor(base).bytes(),
           "view {} [{}, +{}) leaves {} of {} bytes", view.name, view.base_offset, view.bytes(),
           tensor(base).name, tensor(base).bytes());
  return add_tensor(std::move(view));
}

std::int32_t Program::group_of(const std::string& name, const std::vector<std::int32_t>& ranks) {
  if (ranks.size() <= 1) return -1;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].ranks == ranks) return static_cast<std::int32_t>(i);
  }
  const auto self = std::find(ranks.begin(), ranks.end(), place.rank);
  QT_CHECK(self != ranks.end(), "rank {} is not in its own group {}", place.rank, name);
  groups.push_back({name, ranks, static_cast<std::int32_t>(self - ranks.begin())});
  return static_cast<std::int32_t>(groups.size() - 1);
}

TensorId Program::find(std::string_view name) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return static_cast<TensorId>(i);
  }
  return kNone;
}

const Op* Program::producer(TensorId tensor) const {
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    if (std::find(op->outputs.begin(), op->outputs.end(), tensor) != op->outputs.end()) return &*op;
  }
  return nullptr;
}

}  // namespace quintet
