#include "train/model_state.h"

#include <algorithm>

#include "base/check.h"
#include "model/init.h"
#include "optim/optimizer.h"

namespace quintet {
namespace {

// Weights pass through the host in pieces, so that the largest of them (an embedding of gigabytes)
// does not need a second copy of itself.
constexpr std::int64_t kPiece = 1 << 20;

std::vector<std::int64_t> dims_of(const Shape& shape) {
  std::vector<std::int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

}  // namespace

ModelState::ModelState(Executor& executor) : executor_(executor) {
  const Program& program = executor.program();
  for (const Unit& unit : program.units) {
    if (unit.params == kNone) continue;
    UnitState state;
    state.unit = &unit;
    if (program.tensor(unit.params).dtype == DType::kF32) {
      state.master = unit.params;
    } else {
      state.working = unit.params;
      state.master = program.find(master_name(unit.name));
    }
    for (std::size_t t = 0; t < program.tensors.size(); ++t) {
      const Tensor& tensor = program.tensors[t];
      const auto id = static_cast<TensorId>(t);
      if (tensor.storage == Storage::kOptimizer && id != state.master &&
          tensor.name.substr(0, tensor.name.rfind('.')) == unit.name) {
        state.optimizer.push_back(id);
      }
    }
    units_.push_back(std::move(state));
  }
}

void ModelState::write(const UnitState& state, std::int64_t offset, std::span<const float> values) {
  if (state.master != kNone) executor_.write(state.master, offset * 4, std::as_bytes(values));
  if (state.working == kNone) return;
  std::vector<bf16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), [](float v) { return bf16(v); });
  executor_.write(state.working, offset * 2, std::as_bytes(std::span(rounded)));
}

void ModelState::initialise(std::uint64_t seed) {
  std::vector<float> piece;
  for (const UnitState& state : units_) {
    for (const Weight& weight : state.unit->weights) {
      const std::int64_t count = weight.shape.numel();
      for (std::int64_t first = 0; first < count; first += kPiece) {
        piece.resize(static_cast<std::size_t>(std::min(kPiece, count - first)));
        initial_values(weight, seed, first, piece);
        write(state, weight.offset + first, piece);
      }
    }
  }
}

Status ModelState::load(const Safetensors& file) {
  // 1. Look at everything first, so that a wrong file leaves the model as it was.
  std::size_t known = 0;
  for (const UnitState& state : units_) {
    for (const Weight& weight : state.unit->weights) {
      QT_TRY(file.check_float(weight.name, dims_of(weight.shape)));
      ++known;
    }
  }
  if (file.entries().size() != known) {
    for (const auto& [name, entry] : file.entries()) {
      bool found = false;
      for (const UnitState& state : units_) {
        for (const Weight& weight : state.unit->weights) found = found || weight.name == name;
      }
      if (!found)
        return bad_input("{}: tensor \"{}\" is not part of this model", file.origin(), name);
    }
  }
  // 2. Then take it.
  for (const UnitState& state : units_) {
    for (const Weight& weight : state.unit->weights) {
      QT_ASSIGN(const std::vector<float> values,
                file.read_float(weight.name, dims_of(weight.shape)));
      write(state, weight.offset, values);
    }
  }
  return {};
}

Status ModelState::save(const Path& path) const {
  std::vector<SafetensorsWriter::Item> items;
  for (const UnitState& state : units_) {
    for (const Weight& weight : state.unit->weights) {
      items.push_back({weight.name, DType::kF32, dims_of(weight.shape)});
    }
  }
  QT_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, items, {{"format", "pt"}}));
  std::vector<float> piece;
  for (const UnitState& state : units_) {
    for (const Weight& weight : state.unit->weights) {
      const std::int64_t count = weight.shape.numel();
      for (std::int64_t first = 0; first < count; first += kPiece) {
        piece.resize(static_cast<std::size_t>(std::min(kPiece, count - first)));
        executor_.read(state.master, (weight.offset + first) * 4,
                       std::as_writable_bytes(std::span(piece)));
        QT_TRY(writer.append(std::as_bytes(std::span(piece))));
      }
    }
  }
  return writer.commit();
}

Status ModelState::load_optimizer(const Safetensors& file) {
  const Program& program = executor_.program();
  std::size_t known = 0;
  for (const UnitState& state : units_) {
    for (const TensorId id : state.optimizer) {
      QT_TRY(file.check_float(program.tensor(id).name, dims_of(program.tensor(id).shape)));
      ++known;
    }
  }
  if (file.entries().size() != known) {
    return bad_input("{}: {} tensors, this optimizer has {}; was it written by another optimizer?",
                     file.origin(), file.entries().size(), known);
  }
  for (const UnitState& state : units_) {
    for (const TensorId id : state.optimizer) {
      const Tensor& tensor = program.tensor(id);
      QT_ASSIGN(const std::vector<float> values,
                file.read_float(tensor.name, dims_of(tensor.shape)));
      executor_.write(id, 0, std::as_bytes(std::span(values)));
    }
  }
  return {};
}

Status ModelState::save_optimizer(const Path& path) const {
  const Program& program = executor_.program();
  std::vector<SafetensorsWriter::Item> items;
  for (const UnitState& state : units_) {
    for (const TensorId id : state.optimizer) {
      items.push_back({program.tensor(id).name, DType::kF32, dims_of(program.tensor(id).shape)});
    }
  }
  QT_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, items, {}));
  std::vector<float> piece;
  for (const UnitState& state : units_) {
    for (const TensorId id : state.optimizer) {
      const std::int64_t count = program.tensor(id).shape.numel();
      for (std::int64_t first = 0; first < count; first += kPiece) {
        piece.resize(static_cast<std::size_t>(std::min(kPiece, count - first)));
        executor_.read(id, first * 4, std::as_writable_bytes(std::span(piece)));
        QT_TRY(writer.append(std::as_bytes(std::span(piece))));
      }
    }
  }
  return writer.commit();
}

std::int64_t ModelState::parameters() const {
  std::int64_t count = 0;
  for (const UnitState& state : units_) {
    for (const Weight& weight : state.unit->weights) count += weight.shape.numel();
  }
  return count;
}

}  // namespace quintet
