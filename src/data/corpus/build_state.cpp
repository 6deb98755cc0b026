#include "data/corpus/build_state.h"

#include "base/json.h"

namespace quintet {
namespace {

Json row_of(const CorpusCounts& c) {
  return {c.documents, c.bytes, c.characters, c.tokens, c.unknown_characters};
}
CorpusCounts counts_of(const Json& json) {
  return {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4)};
}

Json json_of(const BuildState& state) {
  Json json = {{"plan", state.plan_digest},
               {"phase", static_cast<int>(state.phase)},
               {"ticket", state.position.ticket},
               {"input_bytes", state.input_bytes},
               {"fingerprints", state.fingerprints},
               {"left_out", state.left_out},
               {"bad_lines", state.bad_lines},
               {"tokens_written", state.tokens_written},
               {"first_bad_lines", state.first_bad_lines},
               {"lanes", Json::array()},
               {"series", Json::array()},
               {"finished", Json::array()}};
  for (const TextPosition& lane : state.position.lanes) {
    json["lanes"].push_back({lane.file, lane.offset, lane.line});
  }
  for (const auto& [language, splits] : state.corpus.series) {
    for (const auto& [split, series] : splits) {
      json["series"].push_back({language, static_cast<int>(split), series.shard,
                                series.position.tokens, series.position.documents,
                                row_of(series.counts)});
    }
  }
  for (const ShardEntry& shard : state.corpus.finished) {
    json["finished"].push_back(
        {static_cast<int>(shard.split), shard.language, shard.name, shard.tokens, shard.documents});
  }
  return json;
}

// The file is ours; what is wrong with it throws, and is reported once.
BuildState state_of(const Json& json) {
  BuildState state;
  state.plan_digest = json.at("plan");
  state.phase = static_cast<BuildState::Phase>(json.at("phase").get<int>());
  state.position.ticket = json.at("ticket");
  state.input_bytes = json.at("input_bytes");
  state.fingerprints = json.at("fingerprints").get<std::vector<std::uint64_t>>();
  state.left_out = json.at("left_out").get<std::map<std::string, std::int64_t>>();
  state.bad_lines = json.at("bad_lines");
  state.tokens_written = json.at("tokens_written");
  state.first_bad_lines = json.at("first_bad_lines").get<std::vector<std::string>>();
  for (const Json& lane : json.at("lanes")) {
    state.position.lanes.push_back({lane.at(0), lane.at(1), lane.at(2)});
  }
  for (const Json& entry : json.at("series")) {
    const auto split = static_cast<Split>(entry.at(1).get<int>());
    state.corpus.series[entry.at(0)][split] = {
        entry.at(2), {entry.at(3), entry.at(4)}, counts_of(entry.at(5))};
  }
  for (const Json& entry : json.at("finished")) {
    state.corpus.finished.push_back({static_cast<Split>(entry.at(0).get<int>()), entry.at(1),
                                     entry.at(2), entry.at(3), entry.at(4)});
  }
  return state;
}

}  // namespace

Status save_build_state(FileStore& files, const Path& folder, const BuildState& state) {
  return files.replace(folder / kBuildStateFile, to_text(json_of(state)) + "\n");
}

Result<std::optional<BuildState>> load_build_state(const Path& folder) {
  const Path path = folder / kBuildStateFile;
  if (!std::filesystem::exists(path)) return std::optional<BuildState>();
  QT_ASSIGN(const std::string text, read_file(path));
  const Result<Json> json = parse_json(text, path.string());
  if (!json.ok()) return bad_input("{}; remove the folder and build again", json.error().message);
  try {
    return std::optional(state_of(json.value()));
  } catch (const Json::exception& error) {
    return bad_input("{}: damaged ({}); remove the folder and build again", path.string(),
                     error.what());
  }
}

}  // namespace quintet
