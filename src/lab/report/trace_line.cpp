#include "lab/report/trace_line.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/json.h"

namespace quintet {
namespace {

constexpr std::uintmax_t kLargestTrace = 256u << 20;

struct TraceEvent {
  std::int64_t rank = 0, thread = 0, step = 0;
  double begin = 0, end = 0;  // microseconds
  std::string name, kind;
};

std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<TraceEvent> event_from(const Json& json) {
  if (!json.is_object() || text_in(json, "ph") != "X") return std::nullopt;
  TraceEvent event;
  event.rank = integer_in(json, "pid", 0);
  event.thread = integer_in(json, "tid", 0);
  event.begin = number_in(json, "ts", std::nan(""));
  event.end = event.begin + number_in(json, "dur", std::nan(""));
  event.name = text_in(json, "name");
  event.kind = text_in(json, "cat");
  if (const auto args = json.find("args"); args != json.end()) {
    event.step = integer_in(*args, "step", 0);
  }
  if (!std::isfinite(event.begin) || !std::isfinite(event.end) || event.end < event.begin) {
    return std::nullopt;
  }
  return event;
}

}  // namespace

Result<TimeLine> parse_time_line(const std::string& text, const std::string& origin) {
  QT_ASSIGN(const Json trace, parse_json(text, origin));
  const auto list = trace.is_object() ? trace.find("traceEvents") : trace.end();
  if (list == trace.end() || !list->is_array()) {
    return bad_input("{}: not a trace: there is no list of traceEvents", origin);
  }
  std::vector<TraceEvent> events;
  std::map<std::int64_t, std::string> threads;
  std::int64_t rank = INT64_MAX;
  for (const Json& json : *list) {
    if (auto event = event_from(json)) {
      rank = std::min(rank, event->rank);
      events.push_back(std::move(*event));
    }
  }
  for (const Json& json : *list) {
    if (!json.is_object() || text_in(json, "name") != "thread_name" ||
        integer_in(json, "pid", 0) != rank) {
      continue;
    }
    if (const auto args = json.find("args"); args != json.end() && args->is_object()) {
      threads[integer_in(json, "tid", 0)] = text_in(*args, "name");
    }
  }
  std::erase_if(events, [&](const TraceEvent& event) { return event.rank != rank; });
  if (events.empty()) return bad_input("{}: the trace has no events", origin);
  std::int64_t step = INT64_MAX;
  double begin = INFINITY;
  for (const TraceEvent& event : events) step = std::min(step, event.step);
  std::erase_if(events, [&](const TraceEvent& event) { return event.step != step; });
  std::set<std::int64_t> used;
  for (const TraceEvent& event : events) {
    begin = std::min(begin, event.begin);
    used.insert(event.thread);
  }
  TimeLine line;
  line.title = fmt::format("Step {} on rank {}", step, rank);
  std::map<std::int64_t, std::size_t> rows;
  for (const std::int64_t thread : used) {
    rows[thread] = line.rows.size();
    line.rows.push_back(threads.contains(thread) ? threads[thread]
                                                 : fmt::format("stream {}", thread));
  }
  for (const TraceEvent& event : events) {
    const std::string kind = event.kind.empty() ? "work" : event.kind;
    auto place = std::find(line.kinds.begin(), line.kinds.end(), kind);
    if (place == line.kinds.end()) place = line.kinds.insert(line.kinds.end(), kind);
    line.spans.push_back(
        {rows[event.thread], static_cast<std::size_t>(place - line.kinds.begin()),
         (event.begin - begin) * 1e-6, (event.end - begin) * 1e-6,
         fmt::format("{}: {}", event.name, short_seconds((event.end - event.begin) * 1e-6))});
  }
  return line;
}

std::optional<Path> find_trace(const Path& folder) {
  std::set<Path> traces;
  std::error_code stop;
  for (auto entry = std::filesystem::recursive_directory_iterator(
           folder, std::filesystem::directory_options::skip_permission_denied, stop);
       !stop && entry != std::filesystem::recursive_directory_iterator(); entry.increment(stop)) {
    const std::string name = entry->path().filename().string();
    if (name.find("trace") != std::string::npos && name.ends_with(".json")) {
      traces.insert(entry->path());
    }
  }
  if (traces.empty()) return std::nullopt;
  return *traces.begin();
}

Result<TimeLine> read_time_line(const Path& trace) {
  std::error_code ignored;
  if (std::filesystem::file_size(trace, ignored) > kLargestTrace) {
    return bad_input("{}: the trace is too large to be drawn; trace fewer steps",
                     trace.filename().string());
  }
  QT_ASSIGN(const std::string text, read_file(trace));
  return parse_time_line(text, trace.filename().string());
}

}  // namespace quintet
