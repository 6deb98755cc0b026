#include "program/printer.h"

#include <type_traits>

#include <fmt/format.h>

#include "base/text.h"
#include "program/op_decl.h"

namespace quintet {
namespace {

std::string attrs_text(const Attrs& attrs) {
  std::string out;
  std::visit(
      [&](const auto& a) {
        a.visit([&](std::string_view name, const auto& value) {
          using T = std::decay_t<decltype(value)>;
          out += out.empty() ? " {" : ", ";
          if constexpr (std::is_same_v<T, bool>) {
            out += fmt::format("{} {}", name, value ? "yes" : "no");
          } else {
            out += fmt::format("{} {}", name, value);
          }
        });
      },
      attrs);
  return out.empty() ? out : out + "}";
}

std::string address(const Program& program, TensorId id) {
  const Tensor& base = program.tensor(program.base_of(id));
  if (base.offset < 0) return "@?";
  return fmt::format("{}@{}", base.storage == Storage::kHost ? "host" : "", program.address_of(id));
}

std::string result_text(const Program& program, TensorId id) {
  if (id == kNone) return "_";
  const Tensor& t = program.tensor(id);
  return fmt::format("%{} {} {}{} {}", id, t.name, name_of(t.dtype), t.shape.str(),
                     address(program, id));
}

}  // namespace

std::string to_string(const Program& program, const Op& op) {
  const Tag& tag = op.tag;
  std::string line = fmt::format(
      "{:8} {:5} {:12} {:5} ", name_of(op.stream), name_of(tag.phase),
      tag.unit < 0 ? std::string("-") : program.units.at(static_cast<std::size_t>(tag.unit)).name,
      tag.micro_batch < 0 ? std::string("-") : fmt::format("mb{}", tag.micro_batch));
  if (tag.method != Method::kCompute) line += fmt::format("[{}] ", name_of(tag.method));
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    line += fmt::format("{}{}", i ? ", " : "", result_text(program, op.outputs[i]));
  }
  line += fmt::format(" = {}(", name_of(op.kind));
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    line += i ? ", " : "";
    line += op.inputs[i] == kNone ? std::string("_") : fmt::format("%{}", op.inputs[i]);
  }
  line += ")" + attrs_text(op.attrs);
  if (op.workspace != kNone) {
    line += fmt::format(" ws {} {}", program.tensor(op.workspace).bytes(),
                        address(program, op.workspace));
  }
  for (const OpId wait : op.waits) line += fmt::format(" wait #{}", wait);
  return line;
}

std::string to_string(const Program& program) {
  const Place& place = program.place;
  std::string out = fmt::format(
      "program: rank dp {}/{} tp {}/{} pp {}/{}, {} micro-batch{}, {} ops, arena {} bytes{}\n",
      place.dp, place.dp_size, place.tp, place.tp_size, place.pp, place.pp_size,
      program.micro_batches, program.micro_batches == 1 ? "" : "es", program.ops.size(),
      with_commas(program.arena_bytes),
      program.host_bytes == 0 ? ""
                              : fmt::format(", host memory {}", with_commas(program.host_bytes)));
  out += "units:\n";
  for (std::size_t i = 0; i < program.units.size(); ++i) {
    const Unit& unit = program.units[i];
    out += fmt::format("  {:3} {:12} {} weights, {} elements\n", i, unit.name, unit.weights.size(),
                       with_commas(unit.size));
  }
  out += "resident tensors and their views:\n";
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    const Tensor& t = program.tensors[i];
    if (!is_resident(t.storage)) continue;
    const auto id = static_cast<TensorId>(i);
    out += fmt::format("  {:10} {}{}\n", name_of(t.storage), result_text(program, id),
                       t.base == kNone ? "" : fmt::format(" in %{}", t.base));
  }
  out += "ops:\n";
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    out += fmt::format("  #{:<5} {}\n", i, to_string(program, program.ops[i]));
  }
  return out;
}

std::string fingerprint_of(const Program& program) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : to_string(program)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace quintet
