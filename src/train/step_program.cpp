#include "train/step_program.h"

#include <fmt/ranges.h>

#include "base/check.h"
#include "passes/autodiff.h"
#include "passes/memory_plan.h"
#include "passes/schedule.h"
#include "program/verifier.h"

namespace quintet {
namespace {

void check_sound(const Program& program) {
  const auto findings = verify(program);
  QT_CHECK(findings.empty(), "the compiled program is unsound:\n  {}", fmt::join(findings, "\n  "));
}

}  // namespace

Program compile_step(const StepOptions& options) {
  Program program = emit_t5(options.model, options.batch, options.options);
  autodiff(program);
  recompute(program, options.recompute);
  schedule_micro_batches(program, options.accumulate);
  if (options.update) {
    emit_update(program, options.optimizer);
  } else {
    for (const Unit& unit : program.units) {
      if (unit.grads != kNone) program.results.push_back(unit.grads);
    }
  }
  plan_memory(program, options.target);
  check_sound(program);
  return program;
}

}  // namespace quintet
