#include "train/model_state.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "base/index.h"
#include "base/moments.h"
#include "base/parallel_for.h"
#include "base/remainder.h"
#include "model/init.h"
#include "model/t5.h"
#include "program/shards.h"

namespace quintet {
namespace {

// Values pass through the host in pieces, so that a large shard does not need a second copy of
// itself.
constexpr std::int64_t kPiece = 1 << 20;
static_assert(kPiece % kMomentBlock == 0);

// Calls body(FirstMoment{}) or body(SecondMoment{}) for state k of AdamW.
template <class Body>
void with_moment(std::size_t k, const Body& body) {
  k == 0 ? body(FirstMoment{}) : body(SecondMoment{});
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

std::vector<Weight> whole_weights(const T5Config& model) {
  const StageCut cut = cut_into_stages(model, 1, 1, 1).value();
  std::vector<Weight> weights;
  for (const Unit& unit : emit_t5(model, {1, 1, 1, false}, {}, Place{}, {0}, cut).units) {
    weights.insert(weights.end(), unit.weights.begin(), unit.weights.end());
  }
  return weights;
}

ModelState::ModelState(Executor& executor, World& world, const T5Config& model)
    : executor_(executor), world_(world), model_(model), weights_(whole_weights(model)) {
  const auto& shards = executor.program().shards;
  const bool has_state = !shards.empty() && !shards.front().state.empty();
  if (has_state) {
    values_ = stored_values(shards.front().state.size() == 2 ? "adamw" : "adafactor",
                            shards.front().ema != kNone);
  }
  list_pieces();
}

void ModelState::list_pieces() {
  if (values_.empty()) return;
  std::map<std::string, std::int64_t> number;
  for (std::size_t w = 0; w < weights_.size(); ++w)
    number[weights_[w].name] = static_cast<std::int64_t>(w);
  const Program& program = executor_.program();
  const auto of_whole = std::find_if(values_.begin(), values_.end(),
                                     [](const StoredValue& v) { return !v.per_element; });
  for (std::size_t s = 0; s < program.shards.size(); ++s) {
    const Shard& shard = program.shards[s];
    for (const ShardPiece& piece : shard.pieces) {
      const Weight& weight = weight_of(program, piece);
      pieces_.push_back({number.at(weight.name), 1, weight.row0, weight.rows, weight.col0,
                         weight.cols, weight.shape.cols(), piece.first, piece.count,
                         piece.counted ? 1 : 0});
      where_.push_back({s, piece.offset});
    }
    // The state of a weight as a whole is the same on all ranks that have the weight.
    std::int64_t offset = 0;
    for (const ShardPiece& piece : shard.whole_pieces) {
      if (of_whole == values_.end()) break;
      const Weight& weight = weight_of(program, piece);
      const std::int64_t size = stored_size(weight, *of_whole);
      pieces_.push_back({number.at(weight.name), 0, 0, 1, 0, size, size, 0, size, 1});
      where_.push_back({s, offset});
      offset += size;
    }
  }
}

// Writes the elements of some pieces to a tensor, from source(weight, first element, values).
template <class Source>
Status ModelState::fill(TensorId tensor, const std::vector<ShardPiece>& pieces, Part part,
                        const Source& source) {
  const Program& program = executor_.program();
  const DType dtype = program.tensor(tensor).dtype;
  std::vector<float> values;
  Status status;
  for (const ShardPiece& piece : pieces) {
    const Weight& weight = weight_of(program, piece);
    for_each_run(weight, piece, [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
      for (std::int64_t done = 0; status.ok() && done < count; done += kPiece) {
        values.resize(index(std::min(kPiece, count - done)));
        status = source(weight, element + done, std::span(values));
        const auto store = [&]<class T>(T, const auto& convert) {
          std::vector<T> stored(values.size());
          parallel_for(std::ssize(values), kElementGrain,
                       [&](std::int64_t begin, std::int64_t end, int) {
                         std::transform(values.begin() + begin, values.begin() + end,
                                        stored.begin() + begin, convert);
                       });
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
    QT_TRY(status);
  }
  return {};
}

// Blocks are coded anew, to the nearest code: what was kept in codes with these blocks comes back
// as it was, and almost all of it with others.
template <class Source>
Status ModelState::fill_codes(const Shard& shard, std::size_t k, const Source& source) {
  const Program& program = executor_.program();
  std::int64_t block = 0;
  std::vector<float> values, scales;
  std::vector<std::uint8_t> codes;
  for (const ShardPiece& piece : shard.pieces) {
    const Weight& weight = weight_of(program, piece);
    for (std::int64_t done = 0; done < piece.count; done += kPiece) {
      ShardPiece part = piece;
      part.first += done;
      part.count = std::min(kPiece, piece.count - done);
      part.offset = 0;
      values.assign(index(part.count), 0.0f);
      Status status;
      for_each_run(weight, part, [&](std::int64_t element, std::int64_t at, std::int64_t count) {
        if (status.ok())
          status = source(weight, element, std::span(values).subspan(index(at), index(count)));
      });
      QT_TRY(status);
      codes.resize(values.size());
      scales.resize(index(moment_blocks(part.count)));
      with_moment(k, [&]<class Moment>(Moment) {
        parallel_items(std::ssize(scales), true, [&](std::int64_t b, int) {
          const auto begin = values.begin() + b * kMomentBlock;
          const auto end = values.begin() + std::min((b + 1) * kMomentBlock, part.count);
          float largest = 0;
          for (auto v = begin; v != end; ++v) largest = std::max(largest, std::abs(*v));
          const float scale = scales[index(b)] = moment_scale(largest);
          std::transform(begin, end, codes.begin() + b * kMomentBlock, [&](float v) {
            return Moment::code(v, inverse_moment_scale(scale), kToNearest);
          });
        });
      });
      executor_.write(shard.state[k], piece.offset + done, std::as_bytes(std::span(codes)));
      executor_.write(shard.scales[k], 4 * block, std::as_bytes(std::span(scales)));
      block += std::ssize(scales);
    }
  }
  return {};
}

template <class Source>
Status ModelState::fill_weights(const Source& source) {
  for (const Shard& shard : executor_.program().shards) {
    const bool split =
        shard.master != kNone && executor_.program().tensor(shard.master).dtype == DType::kI16;
    const Part working = split ? Part::kHigh : Part::kRounded;
    if (shard.master != kNone)
      QT_TRY(fill(shard.master, shard.pieces, split ? Part::kLow : Part::kRounded, source));
    if (shard.whole != kNone) {
      QT_TRY(fill(shard.whole, shard.whole_pieces, working, source));
    } else if (shard.working != shard.master) {
      QT_TRY(fill(shard.working, shard.pieces, working, source));
    }
    // A mean of the weights begins with them.
    if (shard.ema != kNone) QT_TRY(fill(shard.ema, shard.pieces, Part::kRounded, source));
  }
  return {};
}

void ModelState::initialise(std::uint64_t seed) {
  const Status status = fill_weights(
      [&](const Weight& weight, std::int64_t first, std::span<float> values) -> Status {
        initial_values(weight, seed, first, values);
        return {};
      });
  QT_CHECK(status.ok(), "initial values failed");
}

std::vector<TensorFiles::Wanted> ModelState::wanted(bool optimizer) const {
  std::vector<TensorFiles::Wanted> wanted;
  for (const auto& tensor :
       checkpoint_layout(weights_, values_.empty() ? stored_values("adamw", false) : values_)
           .tensors) {
    if ((tensor.value != 0) == optimizer) wanted.push_back({tensor.name, tensor.shape});
  }
  return wanted;
}

Status ModelState::check(const TensorFiles& files) const {
  return files.expect(wanted(false));
}

Status ModelState::check_optimizer(const TensorFiles& files) const {
  QT_CHECK(!values_.empty(), "a program without an optimizer");
  if (const Status status = files.expect(wanted(true)); !status.ok())
    return bad_input("{} (was it written by another optimizer?)", status.error().message);
  return {};
}

Status ModelState::load(TensorFiles& files) {
  QT_TRY(check(files));
  return fill_weights([&](const Weight& weight, std::int64_t first, std::span<float> values) {
    return files.read(weight.name, first, values);
  });
}

Status ModelState::load_optimizer(TensorFiles& files) {
  QT_TRY(check_optimizer(files));
  const Program& program = executor_.program();
  for (const Shard& shard : program.shards) {
    if (shard.ema != kNone) {
      QT_TRY(fill(shard.ema, shard.pieces, Part::kRounded,
                  [&](const Weight& weight, std::int64_t first, std::span<float> values) {
                    return files.read(weight.name + "." + kEmaSuffix, first, values);
                  }));
    }
    for (std::size_t k = 0; k < shard.state.size(); ++k) {
      const StoredValue& value = values_[k + 1];
      const auto name_of = [&](const Weight& weight) { return weight.name + "." + value.suffix; };
      if (value.per_element) {
        const auto source = [&](const Weight& weight, std::int64_t first, std::span<float> values) {
          return files.read(name_of(weight), first, values);
        };
        QT_TRY(shard.scales.empty() ? fill(shard.state[k], shard.pieces, Part::kRounded, source)
                                    : fill_codes(shard, k, source));
        continue;
      }
      std::vector<float> state;
      for (const ShardPiece& piece : shard.whole_pieces) {
        const Weight& weight = weight_of(program, piece);
        const std::size_t at = state.size();
        state.resize(at + index(stored_size(weight, value)));
        QT_TRY(files.read(name_of(weight), 0, std::span(state).subspan(at)));
      }
      executor_.write(shard.state[k], 0, std::as_bytes(std::span(state)));
    }
  }
  return {};
}

void ModelState::read(std::int32_t piece, std::int32_t value, std::int64_t at,
                      std::span<float> values) const {
  const Where& where = where_[index(piece)];
  const Shard& shard = executor_.program().shards[where.shard];
  const auto state = index(value) - 1;
  read(shard,
       value == 0                   ? shard.master
       : state < shard.state.size() ? shard.state[state]
                                    : shard.ema,
       where.offset + at - pieces_[index(piece)].first, values);
}

void ModelState::read(const Shard& shard, TensorId tensor, std::int64_t first,
                      std::span<float> values) const {
  const auto get = [&]<class T>(TensorId from, T) {
    std::vector<T> stored(values.size());
    executor_.read(from, first * static_cast<std::int64_t>(sizeof(T)),
                   std::as_writable_bytes(std::span(stored)));
    return stored;
  };
  const auto convert = [&](const auto& value_at) {
    parallel_for(static_cast<std::int64_t>(values.size()), kElementGrain,
                 [&](std::int64_t begin, std::int64_t end, int) {
                   for (std::int64_t i = begin; i < end; ++i) values[index(i)] = value_at(index(i));
                 });
  };
  switch (executor_.program().tensor(tensor).dtype) {
    case DType::kF32:
      executor_.read(tensor, first * 4, std::as_writable_bytes(values));
      return;
    case DType::kI16: {
      const auto low = get(tensor, std::int16_t{});
      const auto high = get(shard.working, bf16{});
      convert([&](std::size_t i) { return static_cast<float>(SplitFloat(high[i], low[i])); });
      return;
    }
    case DType::kBF16: {
      const auto stored = get(tensor, bf16{});
      convert([&](std::size_t i) { return static_cast<float>(stored[i]); });
      return;
    }
    case DType::kU8: {
      const auto k = std::find(shard.state.begin(), shard.state.end(), tensor);
      read_codes(shard, index(k - shard.state.begin()), first, values);
      return;
    }
    default:
      QT_CHECK(false, "weights of type {}", name_of(executor_.program().tensor(tensor).dtype));
  }
}

void ModelState::read_codes(const Shard& shard, std::size_t k, std::int64_t first,
                            std::span<float> values) const {
  const auto after = std::upper_bound(
      shard.pieces.begin(), shard.pieces.end(), first,
      [](std::int64_t element, const ShardPiece& piece) { return element < piece.offset; });
  QT_CHECK(after != shard.pieces.begin(), "element {} of {} is of no weight", first, shard.name);
  const ShardPiece& piece = *std::prev(after);
  const std::int64_t at = first - piece.offset, end = at + std::ssize(values);
  QT_CHECK(end <= piece.count, "elements [{}, {}) of a piece of {}", at, end, piece.count);
  const std::int64_t first_block = at / kMomentBlock;
  const std::int64_t block = moment_blocks({shard.pieces.begin(), std::prev(after)}) + first_block;
  std::vector<std::uint8_t> codes(values.size());
  std::vector<float> scales(index(moment_blocks(end) - first_block));
  executor_.read(shard.state[k], first, std::as_writable_bytes(std::span(codes)));
  executor_.read(shard.scales[k], 4 * block, std::as_writable_bytes(std::span(scales)));
  with_moment(k, [&]<class Moment>(Moment) {
    parallel_for(std::ssize(values), kElementGrain,
                 [&](std::int64_t begin, std::int64_t stop, int) {
                   for (std::int64_t i = begin; i < stop; ++i)
                     values[index(i)] = Moment::value(
                         codes[index(i)], scales[index((at + i) / kMomentBlock - first_block)]);
                 });
  });
}

std::vector<float> ModelState::gather_elements(
    const std::string& name, const std::function<TensorId(const Shard&)>& tensor) const {
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
                     read(shard, tensor(shard), offset, values);
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

std::vector<float> ModelState::gather_weight(const std::string& name) const {
  return gather_elements(name, [](const Shard& shard) { return shard.master; });
}
std::vector<float> ModelState::gather_mean(const std::string& name) const {
  return gather_elements(name, [](const Shard& shard) { return shard.ema; });
}
std::vector<float> ModelState::gather_gradient(const std::string& name) const {
  return gather_elements(name, [](const Shard& shard) { return shard.grad; });
}

}  // namespace quintet
