#include "runtime/trace.h"

#include <fmt/format.h>

#include "program/op_decl.h"

namespace quintet {
namespace {

constexpr int kDataThread = kStreamCount;  // beside the streams: waiting for data

std::string event(std::int32_t rank, int thread, std::string_view name, std::string_view category,
                  double begin, double end, const std::string& args) {
  return fmt::format(
      R"({{"ph":"X","pid":{},"tid":{},"name":"{}","cat":"{}","ts":{:.3f},"dur":{:.3f},"args":{{{}}}}},)"
      "\n",
      rank, thread, name, category, begin * 1e6, (end - begin) * 1e6, args);
}

}  // namespace

std::string op_title(const Program& program, OpId id) {
  const Op& op = program.ops[static_cast<std::size_t>(id)];
  std::string name(name_of(op.kind));
  if (op.tag.unit >= 0) name += " " + program.units[static_cast<std::size_t>(op.tag.unit)].name;
  return name;
}

std::string trace_events(const Program& program, const Backend& backend,
                         std::span<const OpTiming> timings, std::int64_t step, double began,
                         double data_wait) {
  const std::int32_t rank = program.place.rank;
  std::string text;
  if (data_wait > 0) {
    text += event(rank, kDataThread, "wait for data", "data", began - data_wait, began,
                  fmt::format(R"("step":{})", step));
  }
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const OpTiming& t = timings[i];
    const auto thread = static_cast<int>(op.stream);
    const std::string name = op_title(program, static_cast<OpId>(i));
    std::string args =
        fmt::format(R"("step":{},"op":{},"phase":"{}")", step, i, name_of(op.tag.phase));
    if (op.tag.micro_batch >= 0) args += fmt::format(R"(,"micro-batch":{})", op.tag.micro_batch);
    if (const std::int64_t bytes = bytes_sent_by(backend, program, op); bytes > 0)
      args += fmt::format(R"(,"bytes":{})", bytes);
    if (t.blocked > 0) {
      text += event(rank, thread, "wait", "wait", began + t.start - t.blocked, began + t.start,
                    fmt::format(R"("step":{},"for op":{})", step, t.blocked_by));
    }
    text += event(rank, thread, name, name_of(op.tag.method), began + t.start, began + t.end, args);
  }
  return text;
}

std::string trace_names(const Program& program) {
  const std::int32_t rank = program.place.rank;
  std::string text = fmt::format(
      R"json({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"rank {} (dp {} tp {} pp {})"}}}},)json"
      "\n",
      rank, rank, program.place.dp, program.place.tp, program.place.pp);
  for (int stream = 0; stream <= kStreamCount; ++stream) {
    text += fmt::format(
        R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"{}"}}}},)"
        "\n",
        rank, stream, stream == kDataThread ? "data" : name_of(static_cast<Stream>(stream)));
  }
  return text;
}

std::string trace_file(const std::string& events) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events;
  const std::size_t comma = text.find_last_of(",[");
  if (text[comma] == ',') text.erase(comma, 1);
  return text + "]}\n";
}

}  // namespace quintet
