#include "train/agreement.h"

#include <vector>

#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "data/corpus/manifest.h"
#include "model/t5_config.h"

namespace quintet {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Everything that must be the same on all ranks, a line each.
std::string told_to(RunConfig config) {
  config.train.threads = 0;  // machines may differ
  std::string text = "quintet " QUINTET_VERSION "\n" + config_to_toml(config.fields(), false);
  // What is wrong with these files is found again, and said, where they are needed.
  const auto model = load_model_config(config.model.name);
  text += "model: " +
          (model.ok() ? to_text(parse_json(to_hf_config(model.value()), "").value())
                      : model.error().message) +
          "\n";
  if (config.data.kind == "corpus") {
    std::vector<std::string> folders;
    if (auto named = config.data.corpus.folders(); named.ok()) folders = std::move(named).value();
    if (!config.validate.corpus.empty()) folders.push_back(config.validate.corpus);
    for (const std::string& folder : folders) {
      const auto manifest = read_file(Path(folder) / kManifestFile);
      text += "corpus: " + (manifest.ok() ? manifest.value() : manifest.error().message) + "\n";
    }
  }
  return text;
}

// "train.seed = 2 (rank 0: 1)", for the first lines that differ.
std::string differences(const std::string& first, const std::string& other) {
  constexpr std::size_t kEnough = 5, kLongest = 100;
  const auto a = lines_of(first), b = lines_of(other);
  std::vector<std::string> found;
  std::string section;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()) && found.size() < kEnough; ++i) {
    const std::string left = i < a.size() ? a[i] : "nothing",
                      right = i < b.size() ? b[i] : "nothing";
    if (!left.empty() && left.front() == '[' && left.back() == ']')
      section = left.substr(1, left.size() - 2) + ".";
    if (left != right)
      found.push_back(fmt::format(
          "{}{} (rank 0: {})", section, right.substr(0, kLongest),
          left.substr(left.find('=') == right.find('=') && left.find('=') != std::string::npos
                          ? left.find('=') + 2
                          : 0,
                      kLongest)));
  }
  return join(found, ", ");
}

}  // namespace

Status agree_on_text(const std::string& mine, const std::string& what, World& world) {
  const auto all = world.gather(mine);
  std::string finding;
  for (std::size_t r = 1; r < all.size() && finding.empty(); ++r) {
    if (all[r] != all[0])
      finding = fmt::format("rank {} has another {} than rank 0: {}", r, what,
                            differences(all[0], all[r]));
  }
  finding = world.broadcast(finding);
  return finding.empty() ? Status() : Status(usage_error("{}", finding));
}

Error told_by_rank_0(const Error& error, const World& world) {
  if (world.rank() == 0) return error;
  ::usleep(500000);
  return {error.code, ""};
}

Result<RunConfig> agree_on_config(Result<RunConfig> mine, World& world) {
  if (world.size() == 1) return mine;
  // 1. Everybody has one.
  const std::string said =
      mine.ok() ? ""
                : fmt::format("{} {}", static_cast<int>(mine.error().code), mine.error().message);
  const auto all = world.gather(said);
  std::string error;
  for (std::size_t r = 0; r < all.size() && error.empty(); ++r) {
    const bool alone = !all[r].empty() && all[r] != all[0];
    if (!all[r].empty())
      error = alone ? fmt::format("{}rank {}: {}", all[r].substr(0, all[r].find(' ') + 1), r,
                                  all[r].substr(all[r].find(' ') + 1))
                    : all[r];
  }
  error = world.broadcast(error);
  if (!error.empty()) {
    return Error{static_cast<ErrorCode>(std::stoi(error)), error.substr(error.find(' ') + 1)};
  }
  // 2. And the same.
  QT_TRY(agree_on_text(told_to(mine.value()), "configuration", world));
  return mine;
}

}  // namespace quintet
