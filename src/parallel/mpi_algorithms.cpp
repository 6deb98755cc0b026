#include "parallel/mpi_algorithms.h"

#include <algorithm>

#include "base/index.h"
#include "program/op_decl.h"

namespace quintet {

std::int64_t all_reduce_bytes_sent(std::int64_t count, std::int64_t element, std::int64_t members,
                                   std::int64_t index) {
  if (count * element <= kOneRoundBytes) return (members - 1) * count * element;
  const std::int64_t part = (count + members - 1) / members;
  const std::int64_t begin = std::min(index * part, count), mine = std::min(part, count - begin);
  return (count - mine) * element +
         (members - 1) * mine * element;  // everyone's parts, then my sum
}

Talk mpi_talk(const OpView& v) {
  const Op& op = v.op;
  if (op.kind == OpKind::kCopy)
    return {.algorithm = Algorithm::kHostCopy,
            .bytes_sent = v.in(0).bytes(),
            .rounds = 1,
            .bytes = v.in(0).bytes()};
  if (op.kind == OpKind::kSend || op.kind == OpKind::kRecv) {
    const bool sends = op.kind == OpKind::kSend;
    const std::int64_t bytes = sends ? v.in(0).bytes() : v.out(0).bytes();
    return {.algorithm = Algorithm::kMessage,
            .members = 2,
            .bytes_sent = sends ? bytes : 0,
            .rounds = 1,
            .bytes = bytes};
  }
  const std::int32_t at = group_of(op);
  if (at < 0) return {};
  const Group& group = v.program.groups[index(at)];
  const auto members = static_cast<std::int64_t>(group.ranks.size());
  if (op.kind == OpKind::kLinearCrossEntropy) {
    // A maximum, then two sums for each token of a chunk; the last chunk's sums are sent whole.
    namespace lce = linear_cross_entropy;
    const std::int64_t tokens = v.in(lce::kX).shape.rows();
    const std::int64_t chunk = std::min(v.attrs<LinearCrossEntropyAttrs>().chunk, tokens);
    const std::int64_t chunks = (tokens + chunk - 1) / chunk;
    const std::int64_t bytes = 4 * (tokens + 2 * chunk * chunks);
    return {.algorithm = Algorithm::kOneRound,
            .members = members,
            .bytes_sent = (members - 1) * bytes,
            .rounds = 2 * chunks,
            .bytes = bytes};
  }
  Talk talk{.members = members};
  switch (op.kind) {
    case OpKind::kAllGather:
      talk.algorithm = Algorithm::kGather;
      talk.bytes_sent = (members - 1) * v.in(0).bytes();
      talk.rounds = 1;
      talk.bytes = v.out(0).bytes();
      break;
    case OpKind::kReduceScatter:
      talk.algorithm = Algorithm::kExchange;
      talk.bytes_sent = (members - 1) * v.out(0).bytes();
      talk.rounds = 1;
      talk.bytes = v.in(0).bytes();
      break;
    default: {
      const bool small = v.in(0).bytes() <= kOneRoundBytes;
      talk.algorithm = small ? Algorithm::kOneRound : Algorithm::kExchangeGather;
      talk.bytes_sent = all_reduce_bytes_sent(v.in(0).shape.numel(), size_of(v.in(0).dtype),
                                              members, group.index);
      talk.rounds = small ? 1 : 2;
      talk.bytes = v.in(0).bytes();
    }
  }
  return talk;
}

std::int64_t mpi_scratch_bytes(const OpView& v) {
  const bool all_reduce = v.op.kind == OpKind::kAllReduce;
  if (!all_reduce && v.op.kind != OpKind::kReduceScatter) return 0;
  const std::int64_t members = v.attrs<CollectiveAttrs>().group_size;
  const Tensor& x = v.in(0);
  if (all_reduce && x.bytes() <= kOneRoundBytes) return members * x.bytes();
  // Equal parts, one for each member; the last may be padded.
  const std::int64_t part = (x.shape.numel() + members - 1) / members;
  return members * part * size_of(x.dtype);
}

}  // namespace quintet
