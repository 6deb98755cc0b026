#include "passes/offload.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/index.h"
#include "passes/rewriter.h"

namespace quintet {
namespace {

// State that is on the device together: used from op `first` to op `last`.
struct Visit {
  std::size_t first = 0, last = 0;
  std::vector<TensorId> state;  // where it lives: host tensors or views of them
};

class OffloadPass {
 public:
  explicit OffloadPass(Program& program) : program_(program), rewriter_(program) {}

  void run(double share) {
    move_to_host(share);
    const std::vector<Visit> visits = find_visits();
    if (visits.empty()) return;
    OpId last_out = -1;
    for (std::size_t k = 0; k < visits.size(); ++k) {
      const Visit& visit = visits[k];
      const std::size_t ready = k < 2 ? update_begin() : visits[k - 2].last + 1;
      if (last_out >= 0) rewriter_.wait_from(visit.first, last_out);
      last_out = -1;
      for (const TensorId home : visit.state) {
        const OpId out = visit_device(home, visit, ready);
        if (out >= 0) last_out = out;
      }
    }
    rewriter_.apply();
  }

 private:
  // State with a value for each element of its shard: what there is much of.
  std::vector<TensorId> large_state(const Shard& shard) const {
    std::vector<TensorId> tensors = shard.state;
    tensors.push_back(shard.master);
    std::erase_if(tensors, [&](TensorId t) {
      return program_.tensor(t).storage != Storage::kOptimizer ||
             program_.tensor(t).shape.numel() != shard.size;
    });
    return tensors;
  }

  double bytes_of(const Shard& shard) const {
    double bytes = 0;
    for (const TensorId t : large_state(shard))
      bytes += static_cast<double>(program_.tensor(t).bytes());
    return bytes;
  }

  // Takes every so many shards, so that the others' updates go on while these travel. Shards that
  // stand out, the embedding's and the head's, come last: nothing goes on beside their journey.
  void move_to_host(double share) {
    double all = 0, ordinary = 0;
    for (const Shard& shard : program_.shards) all += bytes_of(shard);
    const double usual = 2 * all / static_cast<double>(program_.shards.size());
    for (const Shard& shard : program_.shards)
      if (bytes_of(shard) <= usual) ordinary += bytes_of(shard);
    const double of_ordinary = std::min(share * all, ordinary);
    const double rates[] = {ordinary > 0 ? of_ordinary / ordinary : 0,
                            all > ordinary ? (share * all - of_ordinary) / (all - ordinary) : 0};
    double due[] = {0, 0};
    for (const Shard& shard : program_.shards) {
      const double bytes = bytes_of(shard);
      const std::size_t kind = bytes <= usual ? 0 : 1;
      due[kind] += rates[kind] * bytes;
      if (bytes == 0 || 2 * due[kind] < bytes) continue;
      due[kind] -= bytes;
      for (const TensorId t : large_state(shard)) program_.tensor(t).storage = Storage::kHost;
    }
    for (Tensor& t : program_.tensors) {
      if (t.base != kNone && program_.tensor(t.base).storage == Storage::kHost)
        t.storage = Storage::kHost;
    }
  }

  // In the order of the program, in which one ends before the next begins.
  std::vector<Visit> find_visits() const {
    std::map<TensorId, std::pair<std::size_t, std::size_t>> used;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      for (const auto* slots : {&program_.ops[i].inputs, &program_.ops[i].outputs}) {
        for (const TensorId t : *slots) {
          if (t == kNone || program_.tensor(t).storage != Storage::kHost) continue;
          used.try_emplace(t, i, i).first->second.second = i;
        }
      }
    }
    std::map<std::pair<std::size_t, std::size_t>, Visit> visits;
    for (const auto& [t, ops] : used) {
      Visit& visit = visits[ops];
      visit.first = ops.first;
      visit.last = ops.second;
      visit.state.push_back(t);
    }
    std::vector<Visit> ordered;
    for (auto& [ops, visit] : visits) {
      QT_CHECK(ordered.empty() || ordered.back().last < visit.first,
               "updates of offloaded state at ops {} and {} overlap", ordered.back().last,
               visit.first);
      ordered.push_back(std::move(visit));
    }
    return ordered;
  }

  std::size_t update_begin() const {
    const auto begin = std::find_if(program_.ops.begin(), program_.ops.end(), [](const Op& op) {
      return op.tag.phase == Phase::kUpdate && op.stream == Stream::kCompute;
    });
    return index(begin - program_.ops.begin());
  }

  // Gives one tensor a place on the device for the length of a visit. Returns the copy back to its
  // home; -1 if it is only read.
  OpId visit_device(TensorId home, const Visit& visit, std::size_t ready) {
    Tensor guest = program_.tensor(home);
    guest.name += ".here";
    guest.storage = Storage::kComm;
    guest.base = kNone;
    guest.base_offset = 0;
    const TensorId here = program_.add_tensor(std::move(guest));
    bool written = false;
    for (std::size_t i = visit.first; i <= visit.last; ++i) {
      Op& op = program_.ops[i];
      std::replace(op.inputs.begin(), op.inputs.end(), home, here);
      written = written || std::count(op.outputs.begin(), op.outputs.end(), home) > 0;
      std::replace(op.outputs.begin(), op.outputs.end(), home, here);
    }
    const std::int16_t unit = program_.ops[visit.first].tag.unit;
    const auto copy = [&](std::size_t position, TensorId from, TensorId to, Stream stream) {
      Op op;
      op.kind = OpKind::kCopy;
      op.inputs = {from};
      op.outputs = {to};
      op.stream = stream;
      op.tag = {Phase::kUpdate, Method::kOffload, unit, -1};
      // Not before there is room for it.
      if (const OpId before = rewriter_.last_compute_before(position); before >= 0)
        op.waits.push_back(before);
      return rewriter_.insert(position, std::move(op));
    };
    copy(ready, home, here, Stream::kCopyIn);
    return written ? copy(visit.last + 1, here, home, Stream::kCopyOut) : -1;
  }

  Program& program_;
  Rewriter rewriter_;
};

}  // namespace

void offload(Program& program, double share) {
  OffloadPass(program).run(share);
}

}  // namespace quintet
