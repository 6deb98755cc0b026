// pipeline_picture TRACE.json OUT.svg: one step of all ranks as a picture of its own, a row for
// each rank's computation, drawn by the charts of the reports. The trace is one that `quintet plan
// --trace` or `quintet train --trace` wrote. docs/pictures/pipeline.svg is that of
// docs/foresight.md.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "lab/plot/chart.h"

namespace quintet {
namespace {

// Colours of the reports' pages, light and dark.
constexpr const char* kStyle =
    "<style>svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#1c1e21}.al{fill:#5d636b}"
    ".gr{stroke:#e0ddd6}.ax{stroke:#5d636b}.f0{fill:#0072b2}.f1{fill:#d55e00}.f2{fill:#009e73}"
    ".f3{fill:#c2629a}.f4{fill:#b98400}.f5{fill:#4aa8dc}@media(prefers-color-scheme:dark){"
    "svg{background:#14161a}text{fill:#e8e6e1}.al{fill:#a0a5ad}.gr{stroke:#33373e}"
    ".ax{stroke:#a0a5ad}}</style>\n";

// Phases that the picture tells apart, and what traces call them.
struct Kind {
  const char *name, *phase;
};
constexpr std::array<Kind, 4> kKinds = {
    {{"forward", "fwd"}, {"backward", "bwd"}, {"update", "upd"}, {"recomputation", "rec"}}};

std::size_t kind_of(const std::string& phase) {
  for (std::size_t i = 0; i < kKinds.size(); ++i)
    if (phase == kKinds[i].phase) return i;
  return 0;  // set-up, before the first forward
}

Result<TimeLine> line_of(const Json& trace, const std::string& origin) {
  std::map<std::int64_t, std::string> ranks;
  std::int64_t step = INT64_MAX;
  double begin = INFINITY;
  const auto is_op = [](const Json& event) {
    return event.value("ph", "") == "X" && event.value("cat", "") == "compute" &&
           event.at("args").contains("phase");
  };
  for (const Json& event : trace.at("traceEvents")) {
    if (event.value("name", "") == "process_name")
      ranks[event.at("pid")] = event.at("args").at("name");
    if (is_op(event)) step = std::min<std::int64_t>(step, event.at("args").at("step"));
  }
  TimeLine line;
  line.title = "One step of every rank";
  std::map<std::int64_t, std::size_t> rows;
  for (const auto& [rank, name] : ranks) {
    rows[rank] = line.rows.size();
    line.rows.push_back(name);
  }
  for (const Json& event : trace.at("traceEvents")) {
    if (!is_op(event) || event.at("args").at("step") != step) continue;
    begin = std::min(begin, event.at("ts").get<double>());
  }
  for (const Json& event : trace.at("traceEvents")) {
    if (!is_op(event) || event.at("args").at("step") != step) continue;
    const double from = (event.at("ts").get<double>() - begin) * 1e-6;
    line.spans.push_back({rows.at(event.at("pid")), kind_of(event.at("args").at("phase")), from,
                          from + event.at("dur").get<double>() * 1e-6, event.at("name")});
  }
  std::size_t last = 0;  // kind that is there; recomputation may not be
  for (const TimeLine::Span& span : line.spans) last = std::max(last, span.kind);
  for (std::size_t i = 0; i <= last; ++i) line.kinds.emplace_back(kKinds[i].name);
  if (line.spans.empty()) return bad_input("{}: the trace has no ops that compute", origin);
  return line;
}

Status draw_picture(const char* trace_file, const char* out) {
  QT_ASSIGN(const std::string text, read_file(trace_file));
  QT_ASSIGN(const Json trace, parse_json(text, trace_file));
  QT_ASSIGN(const TimeLine line, line_of(trace, trace_file));
  std::string svg = draw(line, 860);
  svg.insert(std::string_view("<svg").size(), " xmlns=\"http://www.w3.org/2000/svg\"");
  svg.insert(svg.find('\n') + 1, kStyle);
  return write_file(out, svg);
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: pipeline_picture TRACE.json OUT.svg\n");
    return 2;
  }
  const auto status = quintet::draw_picture(argv[1], argv[2]);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().message);
  return static_cast<int>(status.error().code);
}
