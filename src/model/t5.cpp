#include "model/t5.h"

#include "model/t5_emitter.h"

namespace quintet {

Status validate(const T5Config& config, const BatchShape& shape, std::int64_t tp) {
  for (const auto& [key, value] : {std::pair{"micro-batch", shape.micro_batch},
                                   {"source", shape.source},
                                   {"target", shape.target}}) {
    if (value < 1 || value > (1 << 20)) {
      return usage_error("{} = {}: expected 1 to {}", key, value, 1 << 20);
    }
  }
  const auto divides = [&](const char* what, std::int64_t value) -> Status {
    if (value % tp == 0) return {};
    std::string possible;
    for (std::int64_t candidate = 1; candidate <= value && candidate <= 64; ++candidate) {
      if (value % candidate == 0)
        possible += fmt::format("{}{}", possible.empty() ? "" : ", ", candidate);
    }
    return usage_error("tp = {} does not divide {} = {}; tp can be {}", tp, what, value, possible);
  };
  QT_TRY(divides("num_heads", config.num_heads));
  QT_TRY(divides("d_ff", config.d_ff));
  QT_TRY(divides("micro_batch x source tokens", shape.micro_batch * shape.source));
  QT_TRY(divides("micro_batch x target tokens", shape.micro_batch * shape.target));
  return {};
}

Program emit_t5(const T5Config& config, const BatchShape& shape, const ModelOptions& options,
                const Place& place, const std::vector<std::int32_t>& tensor_group,
                const StageCut& cut) {
  Program program;
  program.place = place;
  T5Emitter(program, config, shape, options, tensor_group, cut).emit();
  return program;
}

}  // namespace quintet
