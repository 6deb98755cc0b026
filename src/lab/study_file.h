// A study, as its TOML file describes it (docs/studies.md): a question, factors with their levels,
// what is fixed, the design, and how long is measured. Everything is read and checked before
// anything runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "lab/condition.h"
#include "train/run_config.h"

namespace quintet {

struct DesignFactor {
  std::string name;  // a configuration key, or nodes, ranks_per_node, bandwidth, machine
  std::vector<TomlScalar> levels;  // bandwidth: in Gbit/s
  bool numeric = false;            // a quantity, not a name: effects may be interpolated over it
};

struct StudySection {
  std::string name, question;
  std::int64_t global_batch = 0;
  std::string origin = "auto";
  void list(FieldList& fields);
};

struct DesignSection {
  std::string kind = "full";
  std::int64_t cells = 0, repeats = 1, blocks = 0, seed = 1;
  std::vector<std::string> require, numeric;
  void list(FieldList& fields);
};

struct MeasureSection {
  std::int64_t steps = 6, warmup = 2;
  double timeout = 600;
  void list(FieldList& fields);
};

// Where measured rows run.
struct PlaceSection {
  std::string kind = "local";
  std::vector<std::string> hosts;
  void list(FieldList& fields);
};

struct StudyFile {
  StudySection study;
  DesignSection design;
  MeasureSection measure;
  PlaceSection place;
  std::vector<DesignFactor> factors;
  ConfigValues fixed;    // configuration keys
  Settings fixed_place;  // nodes, ranks_per_node, bandwidth, machine
  std::vector<RowCondition> require;
  std::string text, hash;  // the document; 16 hexadecimal digits of it
  bool measured = true, simulated = false;

  // `file` names it in errors; machine files are looked for as they are written.
  static Result<StudyFile> parse(const std::string& text, const std::string& file);

  // All settings of a cell: factors, what is fixed, and `ranks`.
  Settings settings_of(const std::vector<std::size_t>& levels) const;
};

// One run of a study: where, and with which configuration.
struct CellRun {
  std::int64_t nodes = 1, ranks_per_node = 1;
  double bandwidth = 0;  // bits per second; 0: not shaped
  std::string machine;
  RunConfig config;
  std::int64_t ranks() const { return nodes * ranks_per_node; }
};

// A number, whatever its kind.
double number_of(const TomlScalar& scalar);

// The run of a cell. An error is the reason why there cannot be one: a global batch that does not
// divide, a layout that does not fit the ranks.
Result<CellRun> run_of(const StudyFile& study, const std::vector<std::size_t>& levels);

// Micro-batches accumulated (or sized, where only their number is given) so that the global batch
// is kept on so many ranks.
Status keep_global_batch(RunConfig& config, std::int64_t global_batch, std::int64_t ranks,
                         bool sizes_follow = false);

}  // namespace quintet
