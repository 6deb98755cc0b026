// The verifier must accept what the passes make and find every way of breaking it.
#include "program/verifier.h"

#include <gtest/gtest.h>

#include "program/builder.h"
#include "program/printer.h"
#include "tests/support/programs.h"

namespace quintet {
namespace {

using testing::tiny_step;

Program sound_program() {
  StepOptions options = tiny_step();
  options.accumulate = 2;
  options.recompute = Recompute::kSelective;
  return compile_step(options);
}

bool mentions(const std::vector<std::string>& findings, const std::string& text) {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const std::string& f) { return f.find(text) != std::string::npos; });
}

std::size_t first_op(const Program& program, OpKind kind) {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind == kind) return i;
  }
  return program.ops.size();
}

TEST(Verifier, AcceptsWhatThePassesMake) {
  for (const std::int32_t accumulate : {1, 3}) {
    for (const auto recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (const char* optimizer : {"adamw", "adafactor"}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          StepOptions options = tiny_step();
          options.accumulate = accumulate;
          options.recompute = recompute;
          options.optimizer.name = optimizer;
          options.options.dtype = options.options.grad_dtype = dtype;
          options.model.dropout = 0.1;
          EXPECT_TRUE(verify(compile_step(options)).empty());
        }
      }
    }
  }
}

TEST(Verifier, FindsAReadBeforeTheWrite) {
  Program program = sound_program();
  const std::size_t at = first_op(program, OpKind::kAttention);
  std::swap(program.ops[at - 1], program.ops[at]);
  EXPECT_TRUE(mentions(verify(program), "before it was written"));
}

TEST(Verifier, FindsAMissingWriter) {
  Program program = sound_program();
  program.ops.erase(program.ops.begin() +
                    static_cast<std::ptrdiff_t>(first_op(program, OpKind::kRmsNorm)));
  EXPECT_TRUE(mentions(verify(program), "before it was written"));
}

TEST(Verifier, FindsAPartlyWrittenTensor) {
  // The norm reads whole flat gradients: leaving out one weight's must show.
  Program program = sound_program();
  for (Op& op : program.ops) {
    if (op.kind != OpKind::kAttentionBackward) continue;
    op.outputs[attention_backward::kDBias] = op.inputs[attention_backward::kDBiasAddend] = kNone;
  }
  EXPECT_TRUE(mentions(verify(program), "bias.grads before it was written"));
}

TEST(Verifier, FindsAWrongShape) {
  Program program = sound_program();
  const Op& op = program.ops[first_op(program, OpKind::kActivation)];
  Tensor& out = program.tensor(op.outputs[0]);
  out.shape = out.shape.with_cols(out.shape.cols() - 1);
  EXPECT_TRUE(mentions(verify(program), "declared"));
}

TEST(Verifier, FindsOperandsThatDoNotFit) {
  Program program = sound_program();
  Op& op = program.ops[first_op(program, OpKind::kMatmul)];
  std::get<MatmulAttrs>(op.attrs).transpose_b = false;
  EXPECT_TRUE(mentions(verify(program), "inner sizes"));
}

TEST(Verifier, FindsForeignIds) {
  Program program = sound_program();
  program.ops[0].inputs[0] = static_cast<TensorId>(program.tensors.size());
  EXPECT_TRUE(mentions(verify(program), "is not a tensor"));
}

TEST(Verifier, FindsAViewThatLeavesItsBase) {
  Program program = sound_program();
  for (Tensor& t : program.tensors) {
    if (t.base == kNone || t.base_offset == 0) continue;
    t.base_offset = program.tensor(t.base).bytes() - t.bytes() + 4;
    break;
  }
  EXPECT_TRUE(mentions(verify(program), "leave its base"));
}

TEST(Verifier, FindsOverlappingLiveTensors) {
  // Move a kept activation on top of another that is alive at the same time.
  Program program = sound_program();
  const Op& norm = program.ops[first_op(program, OpKind::kRmsNorm)];
  program.tensor(norm.outputs[0]).offset = program.tensor(program.base_of(norm.inputs[0])).offset;
  EXPECT_FALSE(verify(program).empty());
}

TEST(Verifier, FindsUnlicensedSharing) {
  // A matrix product may not write over its operand, though that operand dies with it.
  Program program;
  Builder b(program);
  const TensorId x = program.add_tensor({"x", {4, 4}, DType::kF32, Storage::kIo});
  b.tag.unit = -1;
  const TensorId a = b.emit_one("a", OpKind::kAdd, NoAttrs{}, {x, x});
  const TensorId c = b.emit_one("c", OpKind::kMatmul, MatmulAttrs{}, {a, x});
  program.tensor(x).offset = 0;
  program.tensor(a).offset = program.tensor(c).offset = 64;
  program.arena_bytes = 128;
  EXPECT_TRUE(mentions(verify(program), "may not work in place"));
  program.ops[1].kind = OpKind::kAdd;
  program.ops[1].attrs = NoAttrs{};
  EXPECT_TRUE(verify(program).empty());
}

TEST(Verifier, FindsOverlappingResidentsAndASmallArena) {
  Program program = sound_program();
  program.arena_bytes -= 256;
  EXPECT_TRUE(mentions(verify(program), "of an arena of"));
  program = sound_program();
  const TensorId bucket = program.base_of(program.units[0].params);
  program.tensor(bucket).offset = program.tensor(program.io.labels).offset;
  EXPECT_TRUE(mentions(verify(program), "overlap"));
}

TEST(Verifier, WatchesOverHostMemory) {
  StepOptions options = tiny_step();
  options.optimizer.offload = 1;
  Program program = compile_step(options);
  ASSERT_TRUE(verify(program).empty());
  program.host_bytes -= 256;
  EXPECT_TRUE(mentions(verify(program), "of host memory of"));
  program = compile_step(options);
  const auto& state = program.shards.front().state;
  program.tensor(state[1]).offset = program.tensor(state[0]).offset;
  EXPECT_TRUE(mentions(verify(program), "overlap"));
  // A copy that its reader does not wait for.
  program = compile_step(options);
  for (Op& op : program.ops)
    if (op.kind == OpKind::kAdamW) op.waits.clear();
  EXPECT_TRUE(mentions(verify(program), "nothing orders them"));
}

TEST(Verifier, FindsUnorderedStreams) {
  // Moved to another stream, an op needs waits on both sides.
  Program program = sound_program();
  const std::size_t at = first_op(program, OpKind::kActivation);
  program.ops[at].stream = Stream::kCopyIn;
  EXPECT_TRUE(mentions(verify(program), "nothing orders them"));
  program.ops[at].waits = {static_cast<OpId>(at - 1)};
  EXPECT_TRUE(mentions(verify(program), "nothing orders them"));  // the reader still does not wait
  program.ops[at + 1].waits = {static_cast<OpId>(at)};
  EXPECT_TRUE(verify(program).empty());
}

TEST(Verifier, FindsAnOverwriteThatARemoteReaderMayStillNeed) {
  Program program;
  Builder b(program);
  b.tag.unit = -1;
  const TensorId x = program.add_tensor({"x", {64}, DType::kF32, Storage::kIo});
  const TensorId a = b.emit_one("a", OpKind::kAdd, NoAttrs{}, {x, x});
  b.emit_one("b", OpKind::kAdd, NoAttrs{}, {a, x});
  program.ops[1].stream = Stream::kCopyIn;
  program.ops[1].waits = {0};
  b.emit("", OpKind::kZero, NoAttrs{}, {},
         {a});  // on the compute stream, while the copy stream reads a
  EXPECT_TRUE(mentions(verify(program), "overwrites a, used by op #1 on stream copy"));
  program.ops[2].waits = {1};
  EXPECT_TRUE(verify(program).empty());
}

TEST(Verifier, FindsAWaitForTheFuture) {
  Program program = sound_program();
  program.ops[3].waits = {5};
  EXPECT_TRUE(mentions(verify(program), "not before it"));
}

TEST(Printer, ShowsWhatMattersAndIsStable) {
  const Program program = sound_program();
  const std::string text = to_string(program);
  EXPECT_EQ(text, to_string(sound_program()));
  for (const char* part :
       {"arena", "units:", "encoder.0", "= attention(", "{heads 4, dim 16, causal no",
        "rec   encoder.1", "upd", "mb1", " @", " ws "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace quintet
