#include "lab/statistics/tradeoff.h"

#include <algorithm>
#include <map>

namespace quintet {

std::vector<Tradeoff> tradeoffs_of(const Table& table, const std::vector<Cell>& cells) {
  const auto [environment, layout] = part_factors(table);
  std::vector<Tradeoff> all;
  std::map<std::string, std::size_t> places;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (std::isnan(cells[c].memory_bytes) || std::isnan(cells[c].seconds)) continue;
    const std::string where = table.describe(cells[c].level, environment);
    const auto [place, fresh] = places.try_emplace(where, all.size());
    if (fresh) all.push_back({where, {}});
    all[place->second].points.push_back({c, std::nullopt});
  }
  for (Tradeoff& one : all) {
    // By time, then memory: a point is on the front when it takes less memory than all before it.
    std::stable_sort(one.points.begin(), one.points.end(), [&](const auto& a, const auto& b) {
      const Cell &x = cells[a.cell], &y = cells[b.cell];
      return x.seconds != y.seconds ? x.seconds < y.seconds : x.memory_bytes < y.memory_bytes;
    });
    std::optional<std::size_t> leanest;
    for (TradeoffPoint& point : one.points) {
      const Cell& cell = cells[point.cell];
      const bool beaten = leanest && (cells[*leanest].memory_bytes < cell.memory_bytes ||
                                      (cells[*leanest].memory_bytes == cell.memory_bytes &&
                                       cells[*leanest].seconds < cell.seconds));
      if (beaten) {
        point.beaten_by = leanest;
      } else {
        leanest = point.cell;
      }
    }
  }
  return all;
}

std::vector<DominatedLayout> dominated_layouts(const Table& table, const std::vector<Cell>& cells,
                                               const std::vector<Tradeoff>& tradeoffs) {
  const auto layout = part_factors(table).second;
  struct Record {
    std::size_t beaten = 0, seen = 0;
    std::map<std::string, std::size_t> by;
  };
  std::map<std::string, Record> records;
  std::vector<std::string> order;
  for (const Tradeoff& one : tradeoffs) {
    for (const TradeoffPoint& point : one.points) {
      const std::string name = table.describe(cells[point.cell].level, layout);
      Record& record = records[name];
      if (record.seen++ == 0) order.push_back(name);
      if (!point.beaten_by) continue;
      ++record.beaten;
      ++record.by[table.describe(cells[*point.beaten_by].level, layout)];
    }
  }
  std::vector<DominatedLayout> dominated;
  for (const std::string& name : order) {
    const Record& record = records[name];
    if (record.beaten < record.seen || (record.seen < 2 && tradeoffs.size() > 1)) continue;
    const auto most =
        std::max_element(record.by.begin(), record.by.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    dominated.push_back({name, most->first, record.seen});
  }
  return dominated;
}

}  // namespace quintet
