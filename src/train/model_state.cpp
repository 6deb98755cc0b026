#include "train/model_state.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/index.h"
#include "base/remainder.h"
#include "model/init.h"
#include "model/t5.h"
#include "program/shards.h"

namespace quintet {
namespace {

// Values pass through the host in pieces, so that a large shard does not need a second copy of
// itself.
constexpr std::int64_t kPiece = 1 << 20;

std::vector<std::int64_t> dims_of(const Shape& shape) {
  std::vector<std::int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

// The whole model's weights: what a rank alone would have.
std::vector<Weight> all_weights(const T5Config& model) {
  const StageCut cut = cut_into_stages(model, 1, 1, 1).value();
  std::vector<Weight> weights;
  for (const Unit& unit : emit_t5(model, {1, 1, 1, false}, {}, Place{}, {0}, cut).units) {
    weights.insert(weights.end(), unit.weights.begin(), unit.weights.end());
  }
  return weights;
}

// Adafactor's state of a weight: rows then columns of a matrix, all values of a vector.
std::int64_t adafactor_size(const Weight& weight) {
  return weight.shape.rank() >= 2 ? weight.shape.rows() + weight.shape.cols()
                                  : weight.shape.numel();
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

ModelState::ModelState(Executor& executor, World& world, const T5Config& model)
    : executor_(executor), world_(world), model_(model), weights_(all_weights(model)) {}

// Writes the elements of some pieces to a tensor, from source(weight, first element, values).
template <class Source>
void ModelState::fill(TensorId tensor, const std::vector<ShardPiece>& pieces, Part part,
                      const Source& source) {
  const Program& program = executor_.program();
  const DType dtype = program.tensor(tensor).dtype;
  std::vector<float> values;
  for (const ShardPiece& piece : pieces) {
    const Weight& weight = weight_of(program, piece);
    for_each_run(weight, piece, [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
      for (std::int64_t done = 0; done < count; done += kPiece) {
        values.resize(index(std::min(kPiece, count - done)));
        source(weight, element + done, std::span(values));
        const auto store = [&]<class T>(T, const auto& convert) {
          std::vector<T> stored(values.size());
          std::transform(values.begin(), values.end(), stored.begin(), convert);
          executor_.write(tensor, (offset + done) * size_of(dtype),
                          std::as_bytes(std::span(stored)));
        };
        if (part == Part::kLow) {
          store(std::int16_t{}, [](float v) { return SplitFloat(v).low; });
        } else if (part == Part::kHigh) {
          store(bf16{}, [](float v) { return SplitFloat(v).high; });
        } else {
          with_float_type(dtype, [&]<class T>(T t) { store(t, [](float v) { return T(v); }); });
        }
      }
    });
  }
}

template <class Source>
void ModelState::fill_weights(const Source& source) {
  for (const Shard& shard : executor_.program().shards) {
    const bool split =
        shard.master != kNone && executor_.program().tensor(shard.master).dtype == DType::kI16;
    const Part working = split ? Part::kHigh : Part::kRounded;
    if (shard.master != kNone)
      fill(shard.master, shard.pieces, split ? Part::kLow : Part::kRounded, source);
    if (shard.whole != kNone) {
      fill(shard.whole, shard.whole_pieces, working, source);
    } else if (shard.working != shard.master) {
      fill(shard.working, shard.pieces, working, source);
    }
  }
}

void ModelState::initialise(std::uint64_t seed) {
  fill_weights([&](const Weight& weight, std::int64_t first, std::span<float> values) {
    initial_values(weight, seed, first, values);
  });
}

Status ModelState::load(const Safetensors& file) {
  std::set<std::string> known;
  for (const Weight& weight : weights_) {
    QT_TRY(file.check_float(weight.name, dims_of(weight.shape)));
    known.insert(weight.name);
  }
  for (const auto& [name, entry] : file.entries()) {
    if (!known.contains(name)) {
      return bad_input("{}: tensor \"{}\" is not part of this model", file.origin(), name);
    }
  }
  fill_weights([&](const Weight& weight, std::int64_t first, std::span<float> values) {
    file.copy_floats(weight.name, first, values);
  });
  return {};
}

std::vector<ModelState::StateKind> ModelState::state_kinds() const {
  const Program& program = executor_.program();
  QT_CHECK(!program.shards.empty() && !program.shards.front().state.empty(),
           "a program without an optimizer");
  if (program.shards.front().state.size() == 2) return {{"m", true}, {"v", true}};
  return {{"adafactor", false}};
}

Status ModelState::load_optimizer(const Safetensors& file) {
  const auto kinds = state_kinds();
  for (const Weight& weight : weights_) {
    for (const StateKind& kind : kinds) {
      const std::string name = weight.name + "." + kind.suffix;
      const auto dims =
          kind.per_element ? dims_of(weight.shape) : std::vector{adafactor_size(weight)};
      if (const Status status = file.check_float(name, dims); !status.ok()) {
        return bad_input("{} (was it written by another optimizer?)", status.error().message);
      }
    }
  }
  const Program& program = executor_.program();
  for (const Shard& shard : program.shards) {
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      if (kinds[k].per_element) {
        fill(shard.state[k], shard.pieces, Part::kRounded,
             [&](const Weight& weight, std::int64_t first, std::span<float> values) {
               file.copy_floats(weight.name + "." + kinds[k].suffix, first, values);
             });
        continue;
      }
      std::vector<float> state;
      for (const ShardPiece& piece : shard.whole_pieces) {
        const Weight& weight = weight_of(program, piece);
        const std::size_t at = state.size();
        state.resize(at + index(adafactor_size(weight)));
        file.copy_floats(weight.name + ".adafactor", 0, std::span(state).subspan(at));
      }
      executor_.write(shard.state[k], 0, std::as_bytes(std::span(state)));
    }
  }
  return {};
}

ModelState::Reader ModelState::reader_of(
    const std::function<TensorId(const Shard&)>& tensor) const {
  return [this, tensor](const Shard& shard, std::int64_t first, std::span<float> values) {
    const DType dtype = executor_.program().tensor(tensor(shard)).dtype;
    const auto read = [&]<class T>(TensorId from, T) {
      std::vector<T> stored(values.size());
      executor_.read(from, first * static_cast<std::int64_t>(sizeof(T)),
                     std::as_writable_bytes(std::span(stored)));
      return stored;
    };
    if (dtype == DType::kI16) {
      const auto low = read(tensor(shard), std::int16_t{});
      const auto high = read(shard.working, bf16{});
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(SplitFloat(high[i], low[i]));
      return;
    }
    with_float_type(dtype, [&]<class T>(T t) {
      const auto stored = read(tensor(shard), t);
      std::transform(stored.begin(), stored.end(), values.begin(),
                     [](T v) { return static_cast<float>(v); });
    });
  };
}

std::vector<float> ModelState::gather_elements(const std::string& name, const Reader& read) const {
  // 1. What this rank contributes: runs of (first element, count, values), of the pieces it answers
  // for.
  const Program& program = executor_.program();
  std::string mine;
  for (const Shard& shard : program.shards) {
    for (const ShardPiece& piece : shard.pieces) {
      const Weight& weight = weight_of(program, piece);
      if (!piece.counted || weight.name != name) continue;
      for_each_run(weight, piece,
                   [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
                     std::vector<float> values(index(count));
                     read(shard, offset, values);
                     const std::int64_t head[2] = {element, count};
                     mine.append(reinterpret_cast<const char*>(head), sizeof head);
                     mine += bytes_of(values);
                   });
    }
  }
  // 2. Rank 0 puts them together.
  const auto texts = world_.gather(mine);
  std::vector<float> values;
  if (world_.rank() != 0) return values;
  const auto whole = std::find_if(weights_.begin(), weights_.end(),
                                  [&](const Weight& w) { return w.name == name; });
  values.resize(index(whole->shape.numel()));
  std::int64_t got = 0;
  for (const std::string& text : texts) {
    for (std::size_t at = 0; at < text.size();) {
      std::int64_t head[2];
      std::memcpy(head, text.data() + at, sizeof head);
      at += sizeof head;
      std::memcpy(values.data() + head[0], text.data() + at, index(head[1]) * sizeof(float));
      at += index(head[1]) * sizeof(float);
      got += head[1];
    }
  }
  QT_CHECK(got == whole->shape.numel(), "{} elements of {} came together, it has {}", got, name,
           whole->shape.numel());
  return values;
}

// The state of a weight is the same on all ranks that have it; the first of them tells.
std::vector<float> ModelState::gather_adafactor(const Weight& whole) const {
  const Program& program = executor_.program();
  const Place& place = program.place;
  std::string mine;
  for (const Shard& shard : program.shards) {
    std::int64_t at = 0;
    for (const ShardPiece& piece : shard.whole_pieces) {
      const Weight& weight = weight_of(program, piece);
      const std::int64_t size = adafactor_size(weight);
      if (weight.name == whole.name && place.dp == 0 && place.tp == 0 &&
          program.units[index(piece.unit)].stages.front() == place.pp) {
        std::vector<float> values(index(size));
        executor_.read(shard.state.front(), at * 4, std::as_writable_bytes(std::span(values)));
        mine = bytes_of(values);
      }
      at += size;
    }
  }
  std::vector<float> values;
  for (const std::string& text : world_.gather(mine)) {
    if (text.empty()) continue;
    values.resize(text.size() / sizeof(float));
    std::memcpy(values.data(), text.data(), text.size());
  }
  return values;
}

std::vector<float> ModelState::gather_weight(const std::string& name) const {
  return gather_elements(name, reader_of([](const Shard& shard) { return shard.master; }));
}
std::vector<float> ModelState::gather_gradient(const std::string& name) const {
  return gather_elements(name, reader_of([](const Shard& shard) { return shard.grad; }));
}

Status ModelState::save_values(const Path& path, bool optimizer) const {
  const std::vector<StateKind> kinds =
      optimizer ? state_kinds() : std::vector<StateKind>{{"", true}};
  std::vector<SafetensorsWriter::Item> items;
  for (const Weight& weight : weights_) {
    for (const StateKind& kind : kinds) {
      items.push_back(
          {optimizer ? weight.name + "." + kind.suffix : weight.name, DType::kF32,
           kind.per_element ? dims_of(weight.shape) : std::vector{adafactor_size(weight)}});
    }
  }
  // Rank 0 writes; should it fail, it still takes part in the gathering, so that nobody is left
  // waiting.
  Status status;
  std::optional<SafetensorsWriter> writer;
  if (world_.rank() == 0) {
    auto created =
        SafetensorsWriter::create(path, items,
                                  optimizer ? std::map<std::string, std::string>{}
                                            : std::map<std::string, std::string>{{"format", "pt"}});
    if (created.ok()) {
      writer.emplace(std::move(created).value());
    } else {
      status = created.error();
    }
  }
  for (const Weight& weight : weights_) {
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      std::vector<float> values;
      if (!optimizer) {
        values = gather_weight(weight.name);
      } else if (kinds[k].per_element) {
        values = gather_elements(weight.name,
                                 reader_of([k](const Shard& shard) { return shard.state[k]; }));
      } else {
        values = gather_adafactor(weight);
      }
      if (writer && status.ok()) status = writer->append(std::as_bytes(std::span(values)));
    }
  }
  if (writer && status.ok()) status = writer->commit();
  return status;
}

Status ModelState::save(const Path& path) const {
  return save_values(path, false);
}
Status ModelState::save_optimizer(const Path& path) const {
  return save_values(path, true);
}

}  // namespace quintet
