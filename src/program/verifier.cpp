#include "program/verifier.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/check.h"
#include "program/op_decl.h"
#include "program/ordering.h"
#include "program/printer.h"

namespace quintet {
namespace {

constexpr std::size_t kMaxFindings = 20;

// One op for each stream, -1 if none.
using Clock = std::array<OpId, kStreamCount>;

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program) {}

  std::vector<std::string> run() {
    check_tensors();
    if (!findings_.empty()) return findings_;  // ids cannot be trusted further
    for (std::size_t i = 0; i < program_.ops.size(); ++i) check_slots(static_cast<OpId>(i));
    if (!findings_.empty()) return findings_;
    ordering_.emplace(program_);
    check_definitions();
    if (program_.arena_bytes > 0) check_memory();
    return findings_;
  }

 private:
  template <class... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    if (findings_.size() < kMaxFindings) {
      findings_.push_back(fmt::format(format, std::forward<Args>(args)...));
    }
  }
  std::string where(OpId id) const {
    return fmt::format("op #{} {}", id, to_string(program_, op(id)));
  }
  const Op& op(OpId id) const { return program_.ops[static_cast<std::size_t>(id)]; }

  void check_tensors() {
    const auto count = static_cast<TensorId>(program_.tensors.size());
    for (const Tensor& t : program_.tensors) {
      if (t.base == kNone) continue;
      if (t.base < 0 || t.base >= count || program_.tensor(t.base).base != kNone) {
        report("view {}: its base %{} is not a tensor of its own", t.name, t.base);
        continue;
      }
      const Tensor& base = program_.tensor(t.base);
      if (t.base_offset < 0 || t.base_offset + t.bytes() > base.bytes()) {
        report("view {}: bytes [{}, {}) leave its base {} of {} bytes", t.name, t.base_offset,
               t.base_offset + t.bytes(), base.name, base.bytes());
      }
      if (t.storage != base.storage)
        report("view {}: not of the storage class of {}", t.name, base.name);
    }
  }

  void check_slots(OpId id) {
    const Op& o = op(id);
    const auto count = static_cast<TensorId>(program_.tensors.size());
    for (const auto* slots : {&o.inputs, &o.outputs}) {
      for (const TensorId t : *slots) {
        if (t != kNone && (t < 0 || t >= count)) {
          report("op #{} {}: %{} is not a tensor", id, name_of(o.kind), t);
          return;
        }
      }
    }
    for (const OpId wait : o.waits) {
      if (wait < 0 || wait >= id) report("op #{}: waits for #{}, which is not before it", id, wait);
    }
    try {
      const auto specs = declaration(o.kind).infer({program_, o});
      for (std::size_t i = 0; i < o.outputs.size(); ++i) {
        if (o.outputs[i] == kNone) continue;
        const Tensor& t = program_.tensor(o.outputs[i]);
        if (t.shape != specs.at(i).shape || t.dtype != specs.at(i).dtype) {
          report("{}: result {} is {}{}, declared {}{}", where(id), i, name_of(t.dtype),
                 t.shape.str(), name_of(specs[i].dtype), specs[i].shape.str());
        }
      }
    } catch (const LogicError& error) {
      report("{}: {}", where(id), error.what());
    }
  }

  bool ordered(OpId before, OpId after) const { return ordering_->ordered(before, after); }

  // The state of a run of bytes of a base tensor: who wrote it last and who has read it since.
  struct Piece {
    std::int64_t end = 0;
    OpId writer = -1;  // -1: not by this program
    bool defined =
        false;  // resident tensors are, from the start: what the host put there is its business
    Clock readers{};
  };
  using Pieces = std::map<std::int64_t, Piece>;  // by first byte; together they cover the tensor

  Pieces& pieces_of(TensorId base) {
    Pieces& pieces = pieces_[static_cast<std::size_t>(base)];
    if (pieces.empty()) {
      const Tensor& t = program_.tensor(base);
      Piece whole{t.bytes(), -1, is_resident(t.storage), {}};
      whole.readers.fill(-1);
      pieces[0] = whole;
    }
    return pieces;
  }

  // The pieces that make up exactly the bytes of a tensor, cut where needed.
  std::pair<Pieces::iterator, Pieces::iterator> range_of(TensorId tensor, Pieces& pieces) {
    const Tensor& t = program_.tensor(tensor);
    const auto cut = [&](std::int64_t at) {
      auto next = pieces.lower_bound(at);
      if (next != pieces.end() && next->first == at) return next;
      auto piece = std::prev(next);
      if (piece->second.end <= at) return next;
      Piece rest = piece->second;
      piece->second.end = at;
      return pieces.insert({at, rest}).first;
    };
    cut(t.base_offset);
    const auto end = cut(t.base_offset + t.bytes());
    return {pieces.find(t.base_offset), end};
  }

  void check_read(OpId id, TensorId tensor) {
    Pieces& pieces = pieces_of(program_.base_of(tensor));
    const auto [begin, end] = range_of(tensor, pieces);
    const std::string& name = program_.tensor(tensor).name;
    for (auto at = begin; at != end; ++at) {
      Piece& piece = at->second;
      if (!piece.defined) report("{}: reads {} before it was written", where(id), name);
      if (piece.writer >= 0 && !ordered(piece.writer, id)) {
        report("{}: reads {}, written by op #{} on stream {}, and nothing orders them", where(id),
               name, piece.writer, name_of(op(piece.writer).stream));
      }
      piece.readers[static_cast<std::size_t>(op(id).stream)] = id;
    }
  }

  void check_write(OpId id, TensorId tensor) {
    const Tensor& t = program_.tensor(tensor);
    if (t.bytes() == 0) return;
    Pieces& pieces = pieces_of(program_.base_of(tensor));
    const auto [begin, end] = range_of(tensor, pieces);
    for (auto at = begin; at != end; ++at) {
      Clock before = at->second.readers;
      if (const OpId writer = at->second.writer; writer >= 0) {
        auto& slot = before[static_cast<std::size_t>(op(writer).stream)];
        slot = std::max(slot, writer);
      }
      for (const OpId access : before) {
        if (access >= 0 && access != id && !ordered(access, id)) {
          report("{}: overwrites {}, used by op #{} on stream {}, and nothing orders them",
                 where(id), t.name, access, name_of(op(access).stream));
        }
      }
    }
    pieces.erase(begin, end);
    Piece fresh{t.base_offset + t.bytes(), id, true, {}};
    fresh.readers.fill(-1);
    pieces[t.base_offset] = fresh;
  }

  void check_definitions() {
    pieces_.assign(program_.tensors.size(), {});
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const auto id = static_cast<OpId>(i);
      for (const TensorId t : op(id).inputs) {
        if (t != kNone && program_.tensor(t).bytes() > 0) check_read(id, t);
      }
      for (const TensorId t : op(id).outputs) {
        if (t != kNone) check_write(id, t);
      }
    }
  }

  // All accesses to a base tensor, as the last one on each stream.
  struct Uses {
    Clock last{};
    OpId last_of_all = -1;
    bool born = false;
    Uses() { last.fill(-1); }
  };

  template <class Visit>
  void for_each_tensor(const Op& o, const Visit& visit) const {
    for (const TensorId t : o.inputs) {
      if (t != kNone) visit(t, false);
    }
    for (const TensorId t : o.outputs) {
      if (t != kNone) visit(t, true);
    }
    if (o.workspace != kNone) visit(o.workspace, true);
  }

  // Whether the op's declaration lets result `born` take over the storage of input `dying`.
  bool may_share(const Op& o, TensorId born, TensorId dying) const {
    for (const InPlace& pair : declaration(o.kind).in_place) {
      if (pair.output < 0) continue;
      if (OpView::slot(o.outputs, pair.output) == born &&
          OpView::slot(o.inputs, pair.input) == dying) {
        return true;
      }
    }
    return false;
  }

  void check_memory() {
    std::vector<Uses> uses(program_.tensors.size());
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      for_each_tensor(program_.ops[i], [&](TensorId t, bool) {
        uses[static_cast<std::size_t>(program_.base_of(t))].last_of_all = static_cast<OpId>(i);
      });
    }
    for (const TensorId t : program_.results) {
      uses[static_cast<std::size_t>(program_.base_of(t))].last_of_all =
          static_cast<OpId>(program_.ops.size());
    }
    // Address -> base tensor whose bytes lie there now; in the arena, and in host memory.
    std::array<std::map<std::int64_t, TensorId>, 2> spaces;
    const auto place = [&](TensorId base, OpId at) {
      const Tensor& t = program_.tensor(base);
      const bool host = t.storage == Storage::kHost;
      const std::int64_t size = host ? program_.host_bytes : program_.arena_bytes;
      const std::int64_t begin = t.offset, end = begin + t.bytes();
      if (begin < 0 || end > size) {
        report("{} is planned at [{}, {}) of {} of {} bytes", t.name, begin, end,
               host ? "host memory" : "an arena", size);
        return;
      }
      if (t.bytes() == 0) return;
      auto& occupied = spaces[host ? 1 : 0];
      auto other = occupied.lower_bound(begin);
      if (other != occupied.begin()) {
        const auto before = std::prev(other);
        if (before->first + program_.tensor(before->second).bytes() > begin) other = before;
      }
      while (other != occupied.end() && other->first < end) {
        check_takeover(base, other->second, at, uses[static_cast<std::size_t>(other->second)]);
        other = occupied.erase(other);
      }
      occupied[begin] = base;
    };
    for (std::size_t i = 0; i < program_.tensors.size(); ++i) {
      const Tensor& t = program_.tensors[i];
      if (t.base != kNone || !is_resident(t.storage)) continue;
      uses[i].last_of_all = static_cast<OpId>(program_.ops.size());  // needed to the end and beyond
      uses[i].born = true;
      place(static_cast<TensorId>(i), -1);
    }
    for (std::size_t i = 0; i < program_.ops.size() && findings_.empty(); ++i) {
      const auto id = static_cast<OpId>(i);
      for_each_tensor(op(id), [&](TensorId t, bool) {
        const TensorId base = program_.base_of(t);
        Uses& u = uses[static_cast<std::size_t>(base)];
        if (!u.born) {
          place(base, id);
          u.born = true;
        }
        u.last[static_cast<std::size_t>(op(id).stream)] = id;
      });
    }
  }

  // Tensor `born`, first touched by op `at`, covers memory of `dying`: is that allowed?
  void check_takeover(TensorId born, TensorId dying, OpId at, const Uses& u) {
    const std::string& name = program_.tensor(born).name;
    const std::string& victim = program_.tensor(dying).name;
    if (at < 0) {
      report("resident tensors {} and {} overlap", name, victim);
      return;
    }
    if (u.last_of_all > at) {
      report("{}: {} overwrites {}, which op #{} still needs", where(at), name, victim,
             u.last_of_all);
      return;
    }
    if (u.last_of_all == at && !may_share(op(at), born, dying)) {
      report("{}: {} shares memory with {} and the op may not work in place", where(at), name,
             victim);
      return;
    }
    for (const OpId access : u.last) {
      if (access >= 0 && access != at && !ordered(access, at)) {
        report("{}: {} takes the memory of {}, and nothing orders it after op #{} on stream {}",
               where(at), name, victim, access, name_of(op(access).stream));
      }
    }
  }

  const Program& program_;
  std::vector<std::string> findings_;
  std::optional<Ordering> ordering_;
  std::vector<Pieces> pieces_;
};

}  // namespace

std::vector<std::string> verify(const Program& program) {
  return Verifier(program).run();
}

}  // namespace quintet
