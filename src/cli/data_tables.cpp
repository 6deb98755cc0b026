#include "cli/data_tables.h"

#include "base/text.h"

namespace quintet {

void print_corpus_table(const Manifest& manifest) {
  fmt::print("{:<12} {:<9} {:>14} {:>14} {:>16} {:>12} {:>12}\n", "language", "split", "documents",
             "bytes", "tokens", "bytes/token", "unknown");
  const auto row = [](const std::string& language, Split split, const CorpusCounts& counts) {
    const auto ratio = [](std::int64_t a, std::int64_t b) {
      return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
    };
    // What was imported as ids never was text here.
    const bool text = counts.bytes > 0 || counts.tokens == 0;
    fmt::print(
        "{:<12} {:<9} {:>14} {:>14} {:>16} {:>12} {:>12}\n", language, name_of(split),
        with_commas(counts.documents), text ? with_commas(counts.bytes) : "-",
        with_commas(counts.tokens),
        text ? fmt::format("{:.3f}", ratio(counts.bytes, counts.tokens)) : "-",
        text ? fmt::format("{:.4f} %", 100 * ratio(counts.unknown_characters, counts.characters))
             : "-");
  };
  for (const auto& [language, splits] : manifest.languages) {
    for (const auto& [split, counts] : splits) row(language, split, counts);
  }
  if (manifest.languages.size() > 1) {
    for (const Split split : kSplits) {
      if (const CorpusCounts sum = manifest.total(split); sum.documents > 0) row("all", split, sum);
    }
  }
  for (const auto& [reason, count] : manifest.left_out) {
    fmt::print("left out: {} ({})\n", with_commas(count), reason);
  }
  for (const auto& [reason, count] : manifest.not_taken) {
    fmt::print("not taken: {} file{} ({})\n", with_commas(count), count == 1 ? "" : "s", reason);
  }
}

std::string describe_sentinels(std::int64_t count, std::int64_t first) {
  if (count == 0) return "none of them sentinels";
  return fmt::format("{} of them sentinels ({} down to {})", count, first, first - count + 1);
}

}  // namespace quintet
