// A small study's store, made by hand: what the study runner writes, without running anything.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <sqlite3.h>

#include "tests/lab/made_up.h"

namespace quintet::testing {

class StudyFixture {
 public:
  explicit StudyFixture(const std::string& file) {
    if (sqlite3_open(file.c_str(), &database_) != SQLITE_OK) throw std::runtime_error("sqlite");
    execute(
        "CREATE TABLE study(key TEXT PRIMARY KEY, value TEXT);"
        "CREATE TABLE factors(position INTEGER PRIMARY KEY, name TEXT UNIQUE, numeric INTEGER,"
        " levels TEXT);"
        "CREATE TABLE runs(id INTEGER PRIMARY KEY, cell INTEGER, repeat INTEGER, block INTEGER,"
        " position INTEGER, origin TEXT, settings TEXT, status TEXT, reason TEXT, command TEXT,"
        " started REAL, finished REAL, exit INTEGER, step_seconds REAL, step_seconds_all TEXT,"
        " tokens_per_second REAL, memory_bytes INTEGER, host_bytes INTEGER, bytes_sent INTEGER,"
        " books TEXT, final_loss REAL, fingerprint TEXT, host TEXT, version TEXT);");
  }
  StudyFixture(const StudyFixture&) = delete;
  StudyFixture& operator=(const StudyFixture&) = delete;
  ~StudyFixture() { sqlite3_close(database_); }

  void execute(const std::string& sql) {
    char* message = nullptr;
    if (sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, &message) != SQLITE_OK) {
      throw std::runtime_error(message);
    }
  }
  void about(const std::string& key, const std::string& value) {
    execute(fmt::format("INSERT INTO study VALUES('{}', '{}')", key, value));
  }

  // ZeRO stages on networks of four speeds, two repeats in blocks and a prediction of each; one
  // setting that cannot be. What is slow on slow networks crosses at 2 Gbit/s.
  void fill() {
    about("name", "ZeRO by bandwidth");
    about("question", "What does sharding cost on slow networks?");
    about("version", "0.1.0");
    about("links", R"([{"asked":5e8,"measured":4.9e8},{"asked":4e9,"measured":3.96e9}])");
    execute(
        R"(INSERT INTO factors VALUES(0, 'parallel.zero', 0, '[0, 3]'), (1, 'bandwidth', 1, '["500mbit", "1gbit", "4gbit", "8gbit"]'), (2, 'nodes', 1, '[2, 4]'))");
    const char* bandwidths[] = {"500mbit", "1gbit", "4gbit", "8gbit"};
    const double values[] = {0.5, 1, 4, 8};
    NormalNumbers normal(11);
    int id = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {  // the last one is the prediction
      for (int cell = 0; cell < 16; ++cell) {
        const int zero = cell % 2 * 3, nodes = cell / 8 * 2 + 2;
        const int b = cell / 2 % 4;
        const bool simulated = repeat == 2, impossible = cell == 15;
        const double compute = 2.0 / nodes;
        const double exposed = 0.3 / values[b] * (zero == 3 ? 2 / std::sqrt(values[b] * 2) : 1);
        const double off = std::exp(0.01 * normal.next());
        const double step = (compute + exposed) * off;
        execute(fmt::format(
            "INSERT INTO runs VALUES({}, {}, {}, {}, {}, '{}', "
            R"('{{"parallel.zero":{},"bandwidth":"{}","nodes":{}}}', '{}', {}, )"
            "'quintet launch -n {} -- train --set parallel.zero={}', 0, 1, 0, {}, '[]', {}, {}, 0, "
            "1000, {}, 6.1, 'f', 'lab', '0.1.0')",
            ++id, cell, repeat, simulated ? 0 : repeat, (cell * 7) % 16,
            simulated ? "simulated" : "measured", zero, bandwidths[b], nodes,
            impossible ? "impossible" : "done", impossible ? "'needs <8> ranks'" : "NULL", nodes,
            zero, impossible ? "NULL" : fmt::format("{:.9f}", step),
            impossible ? "NULL" : fmt::format("{:.3f}", 1e4 / step), zero == 3 ? 500000 : 1000000,
            impossible ? "NULL"
                       : fmt::format(R"('{{"compute":{},"exposed data":{},"hidden data":0.1}}')",
                                     compute * off, exposed * off)));
      }
    }
  }

 private:
  sqlite3* database_ = nullptr;
};

}  // namespace quintet::testing
