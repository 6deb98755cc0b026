// Reading and writing a machine's TOML file.
#include <charconv>
#include <set>

#include <fmt/format.h>

#include "base/files.h"
#include "base/index.h"
#include "base/text.h"
#include "lab/machine.h"

namespace quintet {
namespace {

constexpr std::string_view kWhereDescribed = "docs/machines.md";

struct MachineSection {
  std::string name, note;
  void list(FieldList& fields) {
    fields.add("name", name, "what it is called in reports");
    fields.add("note", note, "where the figures come from");
  }
};
struct MeasuredSection {
  std::string doc;
  std::vector<std::string> items;
  void list(FieldList& fields) { fields.add("measured_us", items, doc); }
};

void add_measured(FieldList& fields, std::vector<std::string>& keys) {
  fields.add("measured", keys,
             "keys of this section that were measured here; the others are data "
             "sheet values");
}

// All that a file can say.
struct Sections {
  MachineSection machine;
  MeasuredSection ops{
      "\"KIND VARIANT SIZES MICROSECONDS [MICROSECONDS WITH OPERANDS IN THE CACHE]\"", {}};
  MeasuredSection collectives{"\"KIND inside|between MEMBERS BYTES MICROSECONDS\"", {}};
};

FieldList fields_of(Sections& file, Machine& machine) {
  FieldList fields;
  fields.add_section("machine", "What this file describes.", file.machine);
  fields.add_section("device", "One device.", machine.device);
  fields.add_section("node", "How devices are put together.", machine.node);
  fields.add_section("inside", "Links between devices of a node.", machine.inside);
  fields.add_section("between", "Links between nodes.", machine.between);
  fields.add_section("sharing", "What goes on at the same time is slower by these factors.",
                     machine.sharing);
  fields.add_section("efficiency",
                     "Shares of the roofline, for ops that nothing measured is near to.",
                     machine.efficiency);
  fields.add_section("collectives", "Measured by themselves.", file.collectives);
  fields.add_section("ops", "Measured by themselves.", file.ops);
  return fields;
}

// A file as lines: for each key where it stands, for each list item where that does.
struct Places {
  std::string file;
  std::map<std::string, TomlEntry> entries;
  std::map<std::string, std::int64_t> last_line;  // of a section's entries

  Error item_error(const std::string& key, std::size_t item, const std::string& why) const {
    return usage_error("{}:{}: {}: {}", file, entries.at(key).item_lines.at(item), key, why);
  }
  bool has(const std::string& key) const { return entries.contains(key); }
};

Status require(const Places& places, const FieldList& fields, const std::string& section,
               std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const std::string key = fmt::format("{}.{}", section, name);
    if (places.has(key)) continue;
    std::string doc, range;
    for (const Field& field : fields.fields()) {
      if (field.key != key) continue;
      doc = field.doc;
      if (field.limits.max < 1e300)
        range = fmt::format(" between {} and {}", field.limits.min, field.limits.max);
    }
    const auto last = places.last_line.find(section);
    return usage_error(
        "{}: {} is missing: expected a value{} ({})",
        last == places.last_line.end()
            ? fmt::format("{}: section [{}]", places.file, section)
            : fmt::format("{}:{}: section [{}] ends here", places.file, last->second, section),
        key, range, doc);
  }
  return {};
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while (true) {
    at = text.find_first_not_of(' ', at);
    if (at == std::string::npos) return words;
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
}

template <class T>
bool read_number(const std::string& word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

// Microseconds an op or a collective may take: from a nanosecond to a quarter of an hour.
Result<double> read_seconds(const std::string& word) {
  double us = 0;
  if (!read_number(word, us)) return usage_error("{} is not a number of microseconds", word);
  if (!(us >= 1e-3 && us <= 1e9))
    return usage_error("{} microseconds: expected between 0.001 and 1e9", word);
  return us * 1e-6;
}

Result<OpKind> read_kind(const std::string& word) {
  std::vector<std::string> names;
  for (int i = 0; i < kOpKindCount; ++i) {
    names.emplace_back(name_of(static_cast<OpKind>(i)));
    if (names.back() == word) return static_cast<OpKind>(i);
  }
  const std::string near = nearest(word, names);
  return usage_error("no op is called {}{}", word,
                     near.empty() ? "" : fmt::format(", did you mean {}?", near));
}

Status read_op(const std::string& item, OpTable& ops) {
  const std::vector<std::string> words = words_of(item);
  if (words.size() != 4 && words.size() != 5)
    return usage_error("\"{}\": expected \"KIND VARIANT SIZES MICROSECONDS [MICROSECONDS]\"", item);
  OpKey key;
  QT_ASSIGN(key.kind, read_kind(words[0]));
  if (is_communication(key.kind)) return usage_error("{} belongs under [collectives]", words[0]);
  key.variant = words[1];
  std::size_t begin = 0;
  while (begin <= words[2].size()) {
    const std::size_t end = std::min(words[2].find('x', begin), words[2].size());
    std::int64_t size = 0;
    if (!read_number(words[2].substr(begin, end - begin), size) || size < 1 || size > (1LL << 48))
      return usage_error("sizes {}: expected positive integers joined by x", words[2]);
    key.sizes.push_back(size);
    begin = end + 1;
  }
  if (static_cast<int>(key.sizes.size()) != size_count(key.kind))
    return usage_error("sizes {}: {} has {} of them", words[2], words[0], size_count(key.kind));
  OpSeconds seconds;
  QT_ASSIGN(seconds.cold, read_seconds(words[3]));
  seconds.warm = seconds.cold;
  if (words.size() == 5) {
    QT_ASSIGN(seconds.warm, read_seconds(words[4]));
  }
  if (ops.contains(key)) return usage_error("{} occurs twice", key.str());
  ops.add(key, seconds);
  return {};
}

Status read_collective(const std::string& item, Machine& machine) {
  const std::vector<std::string> words = words_of(item);
  if (words.size() != 5)
    return usage_error("\"{}\": expected \"KIND inside|between MEMBERS BYTES MICROSECONDS\"", item);
  CollectiveKey key;
  QT_ASSIGN(key.kind, read_kind(words[0]));
  if (!is_communication(key.kind) || key.kind == OpKind::kRecv)
    return usage_error("{} is neither a collective nor send", words[0]);
  if (words[1] != "inside" && words[1] != "between")
    return usage_error("{}: expected inside or between", words[1]);
  key.between = words[1] == "between";
  std::int64_t bytes = 0;
  if (!read_number(words[2], key.members) || key.members < 2 || key.members > (1 << 20))
    return usage_error("{} members: expected at least 2", words[2]);
  if (!read_number(words[3], bytes) || bytes < 1 || bytes > (1LL << 48))
    return usage_error("{} bytes: expected a positive integer", words[3]);
  QT_ASSIGN(const double seconds, read_seconds(words[4]));
  if (!machine.collectives[key].emplace(bytes, seconds).second)
    return usage_error("{} {} {} {} occurs twice", words[0], words[1], words[2], words[3]);
  return {};
}

Status read_beside_ranks(const std::string& item,
                         std::map<std::pair<std::int64_t, OpClass>, double>& table) {
  const std::vector<std::string> words = words_of(item);
  std::int64_t ranks = 0;
  double factor = 0;
  if (words.size() != 3 || !read_number(words[0], ranks) || !read_number(words[2], factor))
    return usage_error("\"{}\": expected \"RANKS CLASS FACTOR\"", item);
  if (ranks < 2 || ranks > 4096) return usage_error("{} ranks: expected 2 to 4096", words[0]);
  if (!(factor >= 0.5 && factor <= 1000))
    return usage_error("factor {}: expected 0.5 to 1000", words[2]);
  std::vector<std::string> names;
  for (int i = 0; i < kOpClassCount; ++i) {
    names.emplace_back(name_of(static_cast<OpClass>(i)));
    if (names.back() != words[1]) continue;
    if (!table.emplace(std::pair{ranks, static_cast<OpClass>(i)}, factor).second)
      return usage_error("{} {} occurs twice", words[0], words[1]);
    return {};
  }
  return usage_error("{}: expected one of {}", words[1], join(names, ", "));
}

// `measured` lists keys of its own section, each once.
Status check_measured(const Places& places, const FieldList& fields) {
  for (const auto& [key, entry] : places.entries) {
    if (entry.key != "measured") continue;
    const auto* names = std::get_if<std::vector<std::string>>(&entry.value);
    if (names == nullptr) continue;  // said elsewhere
    std::vector<std::string> known;
    for (const Field& field : fields.fields()) {
      if (field.key.starts_with(entry.section + ".") && field.key != key)
        known.push_back(field.key.substr(entry.section.size() + 1));
    }
    for (std::size_t i = 0; i < names->size(); ++i) {
      if (std::find(known.begin(), known.end(), (*names)[i]) != known.end()) continue;
      const std::string near = nearest((*names)[i], known);
      return places.item_error(
          key, i,
          fmt::format("[{}] has no key {}{}", entry.section, (*names)[i],
                      near.empty() ? "" : fmt::format(", did you mean {}?", near)));
    }
  }
  return {};
}

std::string microseconds(double seconds) {
  return fmt::format("{:.6g}", seconds * 1e6);
}

}  // namespace

void DeviceSection::list(FieldList& fields) {
  fields.add("kind", kind, "what computes", one_of({"cpu", "cuda"}));
  fields.add("sm", sm, "CUDA compute capability times ten, 90 for Hopper; 0: no GPU",
             between(0, 999));
  fields.add("threads", threads, "CPU: threads of a rank when its ops were measured",
             between(0, 4096));
  fields.add("memory_gib", memory_gib, "memory of the device, in GiB", between(0.1, 1e5));
  fields.add("cache_mib", cache_mib, "its last cache, in MiB", between(0, 1e5));
  fields.add("fp32_tflop_per_s", fp32_tflop_per_s, "matrix products in fp32, in 10^12 operations/s",
             between(1e-3, 1e5));
  fields.add("bf16_tflop_per_s", bf16_tflop_per_s, "matrix products in bf16, in 10^12 operations/s",
             between(1e-3, 1e5));
  fields.add("memory_gb_per_s", memory_gb_per_s, "bytes read and written, in 10^9 bytes/s",
             between(0.1, 1e5));
  fields.add("copy_in_gb_per_s", copy_in_gb_per_s, "from host memory, in 10^9 bytes/s",
             between(0.01, 1e4));
  fields.add("copy_out_gb_per_s", copy_out_gb_per_s, "to host memory, in 10^9 bytes/s",
             between(0.01, 1e4));
  fields.add("copy_latency_us", copy_latency_us, "what a copy takes beside its bytes, in us",
             between(0, 1e5));
  fields.add("op_us", op_us, "what an op takes at least, in us", between(0, 1e5));
  fields.add("launch_us", launch_us, "what the host takes to launch one op, in us",
             between(0, 1e5));
  add_measured(fields, measured);
}

void NodeSection::list(FieldList& fields) {
  fields.add("nodes", nodes, "nodes there are", between(1, 1 << 20));
  fields.add("devices", devices, "devices of a node; ranks of a node on a CPU", between(1, 4096));
  fields.add("cores", cores, "CPU cores of a node", between(1, 65536));
  fields.add("host_memory_gib", host_memory_gib, "memory of a node's host, in GiB",
             between(0.1, 1e6));
  add_measured(fields, measured);
}

void LinkSection::list(FieldList& fields) {
  fields.add("latency_us", latency_us, "of a message, in us", between(0, 1e6));
  fields.add("gb_per_s", gb_per_s, "of one link each way, in 10^9 bytes/s", between(1e-4, 1e5));
  fields.add("links", links, "links of a device inside a node; of a node to others",
             between(1, 4096));
  fields.add("thread_gb_per_s", thread_gb_per_s,
             "CPU, to others: what a rank's thread could send and receive, in 10^9 bytes/s",
             between(0, 1e5));
  add_measured(fields, measured);
}

void SharingSection::list(FieldList& fields) {
  const Limits factor = quintet::between(0.5, 1000);
  fields.add("compute_beside_communication", compute_beside_communication,
             "ops while communication goes on", factor);
  fields.add("communication_beside_compute", communication_beside_compute,
             "communication while ops go on", factor);
  fields.add("compute_beside_copy", compute_beside_copy,
             "ops while copies to or from the host go on", factor);
  fields.add("copy_beside_compute", copy_beside_compute, "copies while ops go on", factor);
  fields.add("copy_both_ways", copy_both_ways, "a copy while another goes the other way", factor);
  fields.add("beside_ranks", beside_ranks,
             "\"RANKS CLASS FACTOR\": ops while N ranks of a node compute, each on its own cores");
  add_measured(fields, measured);
}

void EfficiencySection::list(FieldList& fields) {
  const Limits share = quintet::between(0.001, 1.5);
  fields.add("product", product, "matrix products", share);
  fields.add("attention", attention, "attention and its gradient", share);
  fields.add("loss", loss, "the output layer with its loss", share);
  fields.add("memory", memory, "norms, activations, dropout, sums", share);
  fields.add("lookup", lookup, "embedding and its gradient", share);
  fields.add("update", update, "the optimizer", share);
  fields.add("note", note, "where they come from");
  add_measured(fields, measured);
}

Result<Machine> Machine::parse(std::string_view text, const std::string& file) {
  QT_ASSIGN(std::vector<TomlEntry> entries, parse_toml(text, file));
  Places places{file, {}, {}};
  ConfigValues values;
  for (TomlEntry& entry : entries) {
    const std::string key = entry.section + "." + entry.key;
    if (entry.section.empty())
      return usage_error("{}:{}: {} is outside a section", file, entry.line, entry.key);
    values[key] = {entry.value, fmt::format("{}:{}", file, entry.line)};
    std::int64_t& last = places.last_line[entry.section];
    last = std::max(last, entry.line);
    places.entries.emplace(key, std::move(entry));
  }
  Sections sections;
  Machine machine;
  const FieldList fields = fields_of(sections, machine);
  QT_TRY(apply_config(values, fields, kWhereDescribed));
  QT_TRY(check_measured(places, fields));
  machine.name = sections.machine.name;
  machine.note = sections.machine.note;
  QT_TRY(require(places, fields, "machine", {"name"}));
  QT_TRY(require(places, fields, "device",
                 {"kind", "memory_gib", "cache_mib", "fp32_tflop_per_s", "bf16_tflop_per_s",
                  "memory_gb_per_s", "op_us"}));
  if (machine.kind() == Device::kCuda) {
    QT_TRY(
        require(places, fields, "device",
                {"sm", "copy_in_gb_per_s", "copy_out_gb_per_s", "copy_latency_us", "launch_us"}));
    if (machine.device.sm == 0)
      return usage_error("{}: device.sm = 0: expected a GPU's compute capability (90 for Hopper)",
                         values.at("device.sm").origin);
  }
  QT_TRY(require(places, fields, "node", {"nodes", "devices", "cores", "host_memory_gib"}));
  if (machine.node.devices > 1)
    QT_TRY(require(places, fields, "inside", {"latency_us", "gb_per_s", "links"}));
  if (machine.node.nodes > 1)
    QT_TRY(require(places, fields, "between", {"latency_us", "gb_per_s", "links"}));

  const auto each = [&](const std::string& key, const std::vector<std::string>& items,
                        const auto& read) -> Status {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Status status = read(items[i]);
      // A single string stands for a list of one, and has the key's own line.
      if (!status.ok() && places.entries.at(key).item_lines.empty())
        return usage_error("{}: {}: {}", values.at(key).origin, key, status.error().message);
      if (!status.ok()) return places.item_error(key, i, status.error().message);
    }
    return {};
  };
  QT_TRY(each("ops.measured_us", sections.ops.items,
              [&](const std::string& item) { return read_op(item, machine.ops); }));
  QT_TRY(each("collectives.measured_us", sections.collectives.items,
              [&](const std::string& item) { return read_collective(item, machine); }));
  QT_TRY(each("sharing.beside_ranks", machine.sharing.beside_ranks, [&](const std::string& item) {
    return read_beside_ranks(item, machine.ranks_table_);
  }));
  return machine;
}

Result<Machine> Machine::load(const std::string& file) {
  QT_ASSIGN(const std::string text, read_file(file));
  return parse(text, file);
}

std::string Machine::to_toml() const {
  Sections sections;
  sections.machine = {name, note};
  Machine copy = *this;
  std::string text =
      "# A machine for `quintet plan --machine`; docs/machines.md says what each key means.\n";
  std::string section;
  const auto list = fields_of(sections, copy);
  const bool linked[] = {node.devices > 1 || inside.gb_per_s > 0,
                         node.nodes > 1 || between.gb_per_s > 0};
  for (const Field& field : list.fields()) {
    const std::size_t dot = field.key.find('.');
    const std::string in = field.key.substr(0, dot), key = field.key.substr(dot + 1);
    if (in == "ops" || in == "collectives") continue;  // long lists, below
    if ((in == "inside" && !linked[0]) || (in == "between" && !linked[1])) continue;
    const TomlValue value =
        std::visit([](const auto* target) { return TomlValue(*target); }, field.target);
    // What does not apply is not written: a GPU's copies on a CPU.
    if (const double* number = std::get_if<double>(&value);
        number != nullptr && *number < field.limits.min)
      continue;
    if (in != section) {
      section = in;
      text += fmt::format("\n# {}\n[{}]\n", list.section_doc(section), section);
    }
    text += fmt::format("{} = {}\n", key, quintet::to_toml(value));
  }
  if (!collectives.empty()) {
    text += fmt::format("\n# {}\n[collectives]\nmeasured_us = [\n", sections.collectives.doc);
    for (const auto& [key, by_bytes] : collectives) {
      for (const auto& [bytes, seconds] : by_bytes)
        text += fmt::format("  \"{} {} {} {} {}\",\n", name_of(key.kind),
                            key.between ? "between" : "inside", key.members, bytes,
                            microseconds(seconds));
    }
    text += "]\n";
  }
  if (ops.size() > 0) {
    text += fmt::format("\n# {}\n[ops]\nmeasured_us = [\n", sections.ops.doc);
    ops.for_each([&](const OpKey& key, const OpSeconds& seconds) {
      text += fmt::format("  \"{} {}", key.str(), microseconds(seconds.cold));
      if (seconds.warm != seconds.cold) text += " " + microseconds(seconds.warm);
      text += "\",\n";
    });
    text += "]\n";
  }
  return text;
}

}  // namespace quintet
