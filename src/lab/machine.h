// A machine, as far as the time of a step depends on it: one kind of device, nodes of several of
// them, the links between. Read from a TOML file (machines/, docs/machines.md) that `quintet
// calibrate` measured or somebody wrote from a data sheet; each figure says which of the two it is.
//
// Sections hold the values in the file's units, which stand in their names; functions give them in
// seconds, bytes and operations.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "lab/op_key.h"
#include "lab/op_table.h"
#include "program/op_decl.h"
#include "program/program.h"

namespace quintet {

// Where a time comes from.
enum class Origin : std::uint8_t { kMeasured, kInterpolated, kDataSheet };
constexpr std::string_view name_of(Origin origin) {
  constexpr std::string_view kNames[] = {"measured", "interpolated", "data sheet"};
  return kNames[static_cast<int>(origin)];
}

struct OpTime {
  double seconds = 0;
  Origin origin = Origin::kDataSheet;
};

// One device: a GPU, or what one rank has of a CPU.
struct DeviceSection {
  std::string kind = "cuda";
  std::int64_t sm = 0;       // compute capability, 90 for Hopper; 0 on a CPU
  std::int64_t threads = 0;  // CPU: threads of a rank when its ops were measured; 0 on a GPU
  double memory_gib = 0, cache_mib = 0;
  double fp32_tflop_per_s = 0, bf16_tflop_per_s = 0;
  double memory_gb_per_s = 0;  // read and written together
  double copy_in_gb_per_s = 0, copy_out_gb_per_s = 0, copy_latency_us = 0;
  double op_us = 0;      // what an op takes at least, in a step that runs as it should
  double launch_us = 0;  // what the host needs to launch one, op by op
  std::vector<std::string> measured;
  void list(FieldList& fields);
};

struct NodeSection {
  std::int64_t nodes = 1, devices = 1, cores = 1;
  double host_memory_gib = 0;
  std::vector<std::string> measured;
  void list(FieldList& fields);
};

// Links of one device inside a node, or of one node to others.
struct LinkSection {
  double latency_us = 0;
  double gb_per_s = 0;     // of one link, each way
  std::int64_t links = 1;  // inside: of a device; between: of a node, shared by its devices
  // CPU: what a rank's thread sends, and receives as much, if it does nothing else and the link is
  // no limit; 0: half the rate inside a node.
  double thread_gb_per_s = 0;
  std::vector<std::string> measured;
  void list(FieldList& fields);

  double latency() const { return latency_us * 1e-6; }
  double bytes_per_second() const { return gb_per_s * 1e9; }  // of one link
};

// What goes on at the same time slows each other down: times are multiplied by these.
struct SharingSection {
  double compute_beside_communication = 1, communication_beside_compute = 1;
  double compute_beside_copy = 1, copy_beside_compute = 1;
  double copy_both_ways = 1;  // a copy while another goes the other way
  // Ops of ranks that compute at the same time, each with cores of its own: "2 product 1.05" is two
  // ranks on a node and the factor for a class of ops.
  std::vector<std::string> beside_ranks;
  std::vector<std::string> measured;
  void list(FieldList& fields);
};

// The share of its roofline (products at the device's rate, bytes at its memory's) that a class of
// ops reaches: for ops that nothing measured is near to.
struct EfficiencySection {
  double product = 0.7, attention = 0.35, loss = 0.7, memory = 0.7, lookup = 0.3, update = 0.8;
  std::string note;  // where they come from
  std::vector<std::string> measured;
  void list(FieldList& fields);
  double of(OpClass op_class) const;
};

// A measured collective or message.
struct CollectiveKey {
  OpKind kind{};
  bool between = false;  // over links between nodes
  std::int64_t members = 2;
  bool operator==(const CollectiveKey&) const = default;
  auto operator<=>(const CollectiveKey&) const = default;
};

class Machine {
 public:
  std::string name, note;
  DeviceSection device;
  NodeSection node;
  LinkSection inside, between;
  SharingSection sharing;
  EfficiencySection efficiency;
  OpTable ops;
  // Seconds by bytes: of what is reduced, gathered (the whole) or sent. Of a reduce_scatter: what
  // goes in.
  std::map<CollectiveKey, std::map<std::int64_t, double>> collectives;

  // `file` names it in errors, each of which says the line and what was expected there.
  static Result<Machine> parse(std::string_view text, const std::string& file);
  static Result<Machine> load(const std::string& file);
  // A document that parses to the same machine.
  std::string to_toml() const;

  Device kind() const { return device.kind == "cuda" ? Device::kCuda : Device::kCpu; }
  double memory_bytes() const { return device.memory_gib * 1024 * 1024 * 1024; }
  double host_memory_bytes() const { return node.host_memory_gib * 1024 * 1024 * 1024; }
  double cache_bytes() const { return device.cache_mib * 1024 * 1024; }
  double flops_per_second(DType dtype) const;
  double memory_bytes_per_second() const { return device.memory_gb_per_s * 1e9; }
  double copy_bytes_per_second(bool into_device) const {
    return (into_device ? device.copy_in_gb_per_s : device.copy_out_gb_per_s) * 1e9;
  }
  // The factor for ops of a class when so many ranks of a node compute: between those in the file,
  // the last beyond them.
  double beside_ranks(OpClass op_class, double ranks) const;

  // What an op takes at full rates: its products, or the bytes it moves, whichever takes longer.
  double floor_seconds(const Program& program, const Op& op) const;
  // The time of one op by itself, its operands not in the cache. Not for communication.
  OpTime seconds_of(const Program& program, const Op& op) const;
  // The times of a program's ops, as one follows the other: operands that were touched a moment
  // ago are in the device's cache. Communication is left at zero. Prefer this for whole steps.
  std::vector<OpTime> times_of(const Program& program) const;

  // A collective among so many members by itself, interpolated over the bytes; nothing if it was
  // not measured among so many, or only for much fewer or more bytes.
  std::optional<OpTime> collective_seconds(const CollectiveKey& key, std::int64_t bytes) const;

 private:
  OpTime roofline(const Program& program, const Op& op) const;
  OpTime seconds_of(const Program& program, const Op& op, const OpKey& key,
                    double cached_share) const;
  std::map<std::pair<std::int64_t, OpClass>, double> ranks_table_;  // of sharing.beside_ranks
};

// "measured 93 %, interpolated 7 %, data sheet 0 %": what sums of times rest on.
struct Provenance {
  std::array<double, 3> seconds{};
  void add(const OpTime& time) { seconds[static_cast<std::size_t>(time.origin)] += time.seconds; }
  double total() const { return seconds[0] + seconds[1] + seconds[2]; }
  double share(Origin origin) const {
    return total() > 0 ? seconds[static_cast<std::size_t>(origin)] / total() : 0;
  }
};

}  // namespace quintet
