#include "parallel/grid.h"

#include <array>

#include "base/check.h"

namespace quintet {

void LayoutConfig::list(FieldList& fields) {
  fields.add("tp", tp, "tensor-parallel ranks: each layer's weights are split over this many",
             between(1, 1024));
  fields.add("pp", pp, "pipeline stages: the layers are cut into this many", between(1, 1024));
  fields.add("order", order,
             "how ranks are numbered, fastest first; neighbours talk most along the first",
             one_of({"tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"}));
  fields.add("zero", zero,
             "what is sharded over data-parallel ranks: 0 nothing, 1 optimizer state, 2 and "
             "gradients, 3 and "
             "parameters",
             between(0, 3));
  fields.add(
      "shard_group", shard_group,
      "data-parallel ranks that share one copy of what zero shards; 0: all of them. A smaller "
      "group, of ranks close to each other, communicates less far and keeps more copies",
      at_least(0));
  fields.add(
      "gather_fp8", gather_fp8,
      "zero 3 with train.precision = \"fp8\": gathers the layers' weights as the eight-bit codes "
      "that are multiplied, half the bytes; the training is the same to the bit");
  fields.add("prefetch", prefetch,
             "units that zero 3 gathers ahead of their use, and units by which a reduction may lag",
             between(0, 64));
  fields.add(
      "bucket", bucket,
      "layers are joined until they have this many parameters, then communicated as one; 0: each "
      "layer by itself",
      at_least(0));
  fields.add("whole_below", whole_below, "units with fewer parameters than this are never sharded",
             at_least(0));
  fields.add("schedule", schedule, "order of micro-batches in the pipeline",
             one_of({"1f1b", "interleaved"}));
  fields.add("interleave", interleave, "interleaved: pieces of the model each stage has",
             between(1, 64));
  fields.add("timeout", timeout, "seconds without a sign of life after which a rank counts as lost",
             between(1, 86400));
}

Grid::Grid(std::int32_t dp_size, std::int32_t tp_size, std::int32_t pp_size, std::string order)
    : dp(dp_size), tp(tp_size), pp(pp_size), order_(std::move(order)) {}

namespace {

// The axes of an order, fastest first: 'd', 't', 'p'.
std::array<char, 3> axes_of(const std::string& order) {
  return {order[0], order[3], order[6]};
}

}  // namespace

Place Grid::place_of(std::int32_t rank) const {
  QT_CHECK(rank >= 0 && rank < size(), "rank {} of {}", rank, size());
  Place place{.dp = 0, .tp = 0, .pp = 0, .dp_size = dp, .tp_size = tp, .pp_size = pp, .rank = rank};
  for (const char axis : axes_of(order_)) {
    auto& index = axis == 'd' ? place.dp : axis == 't' ? place.tp : place.pp;
    const std::int32_t length = axis == 'd' ? dp : axis == 't' ? tp : pp;
    index = rank % length;
    rank /= length;
  }
  return place;
}

std::int32_t Grid::rank_of(std::int32_t dp_index, std::int32_t tp_index,
                           std::int32_t pp_index) const {
  std::int32_t rank = 0, stride = 1;
  for (const char axis : axes_of(order_)) {
    rank += stride * (axis == 'd' ? dp_index : axis == 't' ? tp_index : pp_index);
    stride *= axis == 'd' ? dp : axis == 't' ? tp : pp;
  }
  return rank;
}

std::vector<std::int32_t> Grid::ranks_along(const Place& place, bool along_dp, bool along_tp,
                                            bool along_pp) const {
  std::vector<std::int32_t> ranks;
  for (std::int32_t p = along_pp ? 0 : place.pp; p < (along_pp ? pp : place.pp + 1); ++p) {
    for (std::int32_t d = along_dp ? 0 : place.dp; d < (along_dp ? dp : place.dp + 1); ++d) {
      for (std::int32_t t = along_tp ? 0 : place.tp; t < (along_tp ? tp : place.tp + 1); ++t) {
        ranks.push_back(rank_of(d, t, p));
      }
    }
  }
  return ranks;
}

Result<Grid> make_grid(std::int64_t world, const LayoutConfig& layout) {
  const std::int64_t model = layout.tp * layout.pp;
  if (world % model != 0) {
    const std::int64_t fewer = world / model * model, more = fewer + model;
    return usage_error(
        "tp {} x pp {} = {} ranks for one copy of the model do not divide the {} rank{} of this "
        "run; start {}{} ranks (quintet launch -n {} -- ...), or choose tp and pp "
        "whose product divides {}",
        layout.tp, layout.pp, model, world, world == 1 ? "" : "s",
        fewer > 0 ? fmt::format("{} or ", fewer) : "", more, more, world);
  }
  const std::int64_t dp = world / model;
  if (layout.shard_group > 0 && dp % layout.shard_group != 0) {
    return usage_error("parallel.shard_group = {} does not divide {} data-parallel ranks",
                       layout.shard_group, dp);
  }
  return Grid(static_cast<std::int32_t>(dp), static_cast<std::int32_t>(layout.tp),
              static_cast<std::int32_t>(layout.pp), layout.order);
}

}  // namespace quintet
