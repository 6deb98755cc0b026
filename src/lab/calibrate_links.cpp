// Links between ranks, and ranks that compute side by side.
#include <algorithm>
#include <cmath>
#include <set>

#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "lab/calibrate.h"
#include "lab/op_timing.h"
#include "lab/probe.h"

namespace quintet {
namespace {

// Ranks by node, as host names tell.
std::vector<std::vector<std::int32_t>> ranks_by_node(World& world) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::vector<std::string> hosts = world.gather(host);
  std::string line;  // every rank's node, in the order in which nodes appear
  std::vector<std::string> nodes;
  for (const std::string& name : hosts) {
    const auto known = std::find(nodes.begin(), nodes.end(), name);
    line += fmt::format("{} ", known - nodes.begin());
    if (known == nodes.end()) nodes.push_back(name);
  }
  line = world.broadcast(line);
  std::vector<std::vector<std::int32_t>> by_node;
  std::size_t at = 0;
  for (std::int32_t rank = 0; rank < world.size(); ++rank) {
    std::size_t used = 0;
    const auto node = static_cast<std::size_t>(std::stoll(line.substr(at), &used));
    at += used;
    if (by_node.size() <= node) by_node.resize(node + 1);
    by_node[node].push_back(rank);
  }
  return by_node;
}

// A group to measure among, and whether its members are on different nodes.
struct Members {
  std::vector<std::int32_t> ranks;
  bool between = false;
};

std::vector<Members> groups_of(const std::vector<std::vector<std::int32_t>>& nodes) {
  std::vector<Members> groups;
  const auto add = [&](std::vector<std::int32_t> ranks, bool between) {
    if (ranks.size() < 2) return;
    for (const Members& known : groups)
      if (known.ranks == ranks) return;
    groups.push_back({std::move(ranks), between});
  };
  // Inside the first node: 2, 4, ... and all of it.
  const std::vector<std::int32_t>& first = nodes.front();
  for (std::size_t size = 2; size <= first.size(); size *= 2)
    add({first.begin(), first.begin() + static_cast<std::ptrdiff_t>(size)}, false);
  add(first, false);
  // One rank of each of 2, 4, ... and all nodes; then all ranks.
  std::vector<std::int32_t> leaders, all;
  for (const auto& node : nodes) leaders.push_back(node.front());
  for (std::size_t size = 2; size <= leaders.size(); size *= 2)
    add({leaders.begin(), leaders.begin() + static_cast<std::ptrdiff_t>(size)}, true);
  if (nodes.size() > 1) {
    add(leaders, true);
    for (const auto& node : nodes) all.insert(all.end(), node.begin(), node.end());
    std::sort(all.begin(), all.end());
    add(all, true);
  }
  return groups;
}

// A program made by hand: float32 tensors one after the other, and the scratch memory of its ops.
class HandMade {
 public:
  HandMade(const Target& target, std::int32_t rank) : backend_(make_backend(target)) {
    program.target = target;
    program.place.rank = rank;
  }
  TensorId tensor(Shape shape) {
    Tensor t{"t", shape, DType::kF32, Storage::kActivation};
    t.offset = end_;
    end_ += aligned(t.bytes(), 256);
    return program.add_tensor(std::move(t));
  }
  CollectiveAttrs among(const Members& members, Shape out) {
    CollectiveAttrs attrs;
    attrs.group = program.group_of("measured", members.ranks);
    attrs.group_size = static_cast<std::int32_t>(members.ranks.size());
    attrs.shape = out;
    return attrs;
  }
  Program finish() && {
    for (Op& op : program.ops) {
      const std::int64_t scratch = backend_->scratch_bytes({program, op});
      if (scratch > 0) op.workspace = tensor({(scratch + 3) / 4});
    }
    program.arena_bytes = std::max<std::int64_t>(end_, 256);
    return std::move(program);
  }

  Program program;

 private:
  std::unique_ptr<const Backend> backend_;
  std::int64_t end_ = 0;
};

// A program of collectives one after the other, or of a message there and back, on `bytes` each: as
// many as it takes for none to find its buffers in a cache of `cache_bytes`, as in a step. Between
// nodes one will do: the network is slower than memory.
Program collective_program(const CollectiveKey& key, const Members& members, std::int32_t rank,
                           std::int64_t bytes, const Target& target, double cache_bytes) {
  HandMade made(target, rank);
  Program& program = made.program;
  const auto size = static_cast<std::int64_t>(members.ranks.size());
  const std::int64_t elements = std::max<std::int64_t>(bytes / 4 / size, 1) * size;
  Op op;
  op.kind = key.kind;
  if (key.kind == OpKind::kSend) {
    program.place.pp_size = 2;  // messages are a pipeline's
    const bool sends = rank == members.ranks[0];
    const TensorId x = made.tensor({elements});
    const Shape shape = program.tensor(x).shape;
    const std::int32_t peer = members.ranks[sends ? 1 : 0];
    Op there = op, back = op;
    there.stream = Stream::kSendForward;
    back.stream = Stream::kRecvForward;
    there.kind = OpKind::kSend;
    back.kind = OpKind::kRecv;
    there.attrs = TransferAttrs{peer, sends ? 1 : 2, shape, DType::kF32};
    back.attrs = TransferAttrs{peer, sends ? 2 : 1, shape, DType::kF32};
    there.inputs = {x};
    back.outputs = {made.tensor({elements})};
    // One sends and then receives, the other receives and then sends.
    if (sends) {
      back.waits = {0};
      program.ops = {there, back};
    } else {
      there.waits = {0};
      program.ops = {back, there};
    }
  } else {
    const bool scatters = key.kind == OpKind::kReduceScatter;
    const std::int64_t in = key.kind == OpKind::kAllGather ? elements / size : elements;
    const std::int64_t out = scatters ? elements / size : elements;
    op.attrs = made.among(members, {out});
    op.stream = Stream::kDataComm;
    constexpr int kMostCopies = 64;
    const int copies =
        key.between ? 1
                    : std::clamp(static_cast<int>(std::ceil(2.5 * cache_bytes /
                                                            (4.0 * static_cast<double>(in + out)))),
                                 1, kMostCopies);
    for (int copy = 0; copy < copies; ++copy) {
      op.inputs = {made.tensor({in})};
      op.outputs = {made.tensor({out})};
      program.ops.push_back(op);
    }
  }
  return std::move(made).finish();
}

// The median seconds of one run of it, the slowest member's.
Result<double> time_collective(const Program& program, World& world, bool takes_part,
                               std::int64_t bytes) {
  std::unique_ptr<Executor> executor;
  if (takes_part) {
    auto made = make_executor(program, world);
    if (!made.ok()) return std::move(made).error();
    executor = std::move(made).value();
  }
  const auto ops = static_cast<std::int64_t>(std::max<std::size_t>(program.ops.size(), 1));
  const int inner = static_cast<int>(std::clamp<std::int64_t>((1 << 20) / (ops * bytes), 1, 20));
  std::vector<double> rounds;
  for (int round = 0; round < 8; ++round) {
    world.barrier();
    const double start = now();
    if (executor != nullptr) {
      for (int i = 0; i < inner; ++i) {
        QT_TRY(executor->run());
        QT_TRY(executor->wait());
      }
    }
    const double mine = executor == nullptr ? 0 : (now() - start) / inner;
    const double slowest = -static_cast<double>(world.minimum(-std::llround(mine * 1e9))) * 1e-9;
    if (round > 0) rounds.push_back(slowest);  // the first makes connections
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

// Latency and rate of a link from messages of all sizes: the smallest's time, and the bytes that
// the largest took beyond it.
void set_link(LinkSection& link, const std::map<std::int64_t, double>& messages) {
  const auto& [small, small_seconds] = *messages.begin();
  const auto& [large, large_seconds] = *messages.rbegin();
  link.latency_us = small_seconds * 1e6;
  link.gb_per_s = std::clamp(
      static_cast<double>(large - small) / std::max(large_seconds - small_seconds, 1e-9) * 1e-9,
      1e-4, 1e5);
  link.measured = {"latency_us", "gb_per_s"};
}

// Ops of each class, alone on a node and on all its ranks at the same time.
Status measure_side_by_side(const CalibrateOptions& options, World& world,
                            const std::vector<std::vector<std::int32_t>>& nodes, Machine& machine) {
  const auto ranks = static_cast<std::int64_t>(nodes.front().size());
  if (ranks < 2) return {};
  const auto single = make_single_world();
  Program program;
  const DType dtype = options.precision == "fp32" ? DType::kF32 : DType::kBF16;
  const auto tensor = [&](Shape shape) {
    return program.add_tensor({"t", shape, dtype, Storage::kActivation});
  };
  Op product, sum;
  product.kind = OpKind::kMatmul;
  product.attrs = MatmulAttrs{false, true};
  product.inputs = {tensor({512, 512}), tensor({512, 512}), kNone};
  product.outputs = {tensor({512, 512})};
  const std::int64_t large = options.device.device == Device::kCuda ? 1 << 26 : 1 << 22;
  sum.kind = OpKind::kAdd;
  sum.inputs = {tensor({large}), tensor({large})};
  sum.outputs = {tensor({large})};
  Probe probe(options.device);
  std::vector<TimedOp> ops;
  for (const Op& op : {product, sum})
    ops.push_back({probe.add(program, op, machine.cache_bytes()), 1, {}});
  QT_TRY(probe.start(*single));
  // Alone: the others sleep, since a rank that waits for a message keeps its core busy.
  constexpr double kAlone = 1.5;
  world.barrier();
  const double start = now();
  std::vector<TimedOp> alone = ops;
  if (world.rank() == 0) QT_TRY(time_ops(probe, alone, 0));
  if (const double left = kAlone - (now() - start); left > 0)
    ::usleep(static_cast<useconds_t>(left * 1e6));
  world.barrier();
  QT_TRY(time_ops(probe, ops, 0));
  world.barrier();
  if (world.rank() != 0) return {};
  const auto factor = [&](std::size_t i) {
    return std::clamp(ops[i].seconds.cold / alone[i].seconds.cold, 0.5, 1000.0);
  };
  const std::string prefix = fmt::format("{} ", ranks);
  auto& list = machine.sharing.beside_ranks;
  std::erase_if(list, [&](const std::string& item) { return item.starts_with(prefix); });
  for (const OpClass op_class : {OpClass::kProduct, OpClass::kAttention, OpClass::kLoss})
    list.push_back(fmt::format("{} {} {:.4g}", ranks, name_of(op_class), factor(0)));
  for (const OpClass op_class : {OpClass::kMemory, OpClass::kLookup, OpClass::kUpdate})
    list.push_back(fmt::format("{} {} {:.4g}", ranks, name_of(op_class), factor(1)));
  auto& measured = machine.sharing.measured;
  if (std::find(measured.begin(), measured.end(), "beside_ranks") == measured.end())
    measured.emplace_back("beside_ranks");
  return {};
}

// What talking to other nodes takes of a rank's thread: products while a gather goes on, against
// the products alone.
Status measure_thread(const CalibrateOptions& options, World& world, const Members& members,
                      Machine& machine) {
  const bool takes_part = std::count(members.ranks.begin(), members.ranks.end(), world.rank()) > 0;
  const auto size = static_cast<std::int64_t>(members.ranks.size());
  // Gathers of a MiB one after the other, and products for twice as long.
  constexpr double kSeconds = 0.15;
  constexpr std::int64_t kBytes = 1 << 20;
  const std::int64_t part = kBytes / 4 / size;
  int gathers = 1;
  if (world.rank() == 0) {
    if (const auto one = machine.collective_seconds({OpKind::kAllGather, true, size}, kBytes))
      gathers = static_cast<int>(std::clamp(kSeconds / one->seconds, 1.0, 500.0));
  }
  gathers = std::stoi(world.broadcast(std::to_string(gathers)));
  const auto program_of = [&](int products, bool talks) {
    HandMade made(options.device, world.rank());
    Program& program = made.program;
    if (talks) {
      Op gather;
      gather.kind = OpKind::kAllGather;
      gather.stream = Stream::kDataComm;
      gather.attrs = made.among(members, {part * size});
      gather.inputs = {made.tensor({part})};
      gather.outputs = {made.tensor({part * size})};
      program.ops.insert(program.ops.end(), static_cast<std::size_t>(gathers), gather);
    }
    Op product;
    product.kind = OpKind::kMatmul;
    product.attrs = MatmulAttrs{false, true};
    product.inputs = {made.tensor({128, 256}), made.tensor({256, 256}), kNone};
    product.outputs = {made.tensor({128, 256})};
    program.ops.insert(program.ops.end(), static_cast<std::size_t>(products), product);
    return std::move(made).finish();
  };
  const auto time = [&](int products, bool talks) {
    return time_collective(program_of(products, talks), world, takes_part, 1 << 20);
  };
  constexpr int kFew = 20;
  QT_ASSIGN(double few, time(kFew, false));
  few = std::stod(world.broadcast(std::to_string(few)));
  const int products = static_cast<int>(
      std::clamp(std::ceil(2 * kSeconds / std::max(few / kFew, 1e-6)), 10.0, 20000.0));
  QT_ASSIGN(const double alone, time(products, false));
  QT_ASSIGN(const double talking, time(products, true));
  if (world.rank() != 0) return {};
  // Too little to be told from noise is nothing.
  machine.between.thread_gb_per_s = 0;
  if (talking < 1.01 * alone) return {};
  const double sent = static_cast<double>(gathers * part * (size - 1)) * 4;
  machine.between.thread_gb_per_s = std::clamp(sent / (talking - alone) * 1e-9, 1e-4, 1e5);
  machine.between.measured.emplace_back("thread_gb_per_s");
  log_info("a thread could talk {:.2f} GB/s to other nodes", machine.between.thread_gb_per_s);
  return {};
}

}  // namespace

Status calibrate_links(const CalibrateOptions& options, World& world) {
  if (world.size() < 2)
    return usage_error("links are between ranks: quintet launch -n 2 -- calibrate --links --out {}",
                       options.out);
  const bool reports = world.rank() == 0;
  Machine machine;
  // Rank 0 has the file; if it cannot be read everybody ends.
  std::string failure;
  if (reports) {
    auto loaded = Machine::load(options.out);
    if (loaded.ok()) {
      machine = std::move(loaded).value();
    } else {
      failure = loaded.error().message;
    }
  }
  failure = world.broadcast(failure);
  if (!failure.empty())
    return usage_error("{}; measure its ops first: quintet calibrate --out {}", failure,
                       options.out);
  machine.device.cache_mib = std::stod(world.broadcast(std::to_string(machine.device.cache_mib)));
  const auto nodes = ranks_by_node(world);
  const auto groups = groups_of(nodes);
  if (reports)
    log_info("{} ranks on {} node{}: {} groups to measure", world.size(), nodes.size(),
             nodes.size() == 1 ? "" : "s", groups.size());
  const std::vector<std::int64_t> sizes = {256, 4096, 1 << 16, 1 << 18, 1 << 20, 1 << 23, 1 << 25};
  std::map<bool, std::map<std::int64_t, double>> messages;
  for (const Members& members : groups) {
    const bool takes_part =
        std::count(members.ranks.begin(), members.ranks.end(), world.rank()) > 0;
    for (const OpKind kind :
         {OpKind::kSend, OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter}) {
      if (kind == OpKind::kSend && members.ranks.size() != 2) continue;
      const CollectiveKey key{kind, members.between,
                              static_cast<std::int64_t>(members.ranks.size())};
      for (const std::int64_t bytes : sizes) {
        Program program;
        program.arena_bytes = 256;
        program.target = options.device;
        // Messages are prepared by all ranks together.
        if (kind == OpKind::kSend) program.place.pp_size = 2;
        if (takes_part)
          program = collective_program(key, members, world.rank(), bytes, options.device,
                                       machine.cache_bytes());
        QT_ASSIGN(double seconds,
                  time_collective(program, world, takes_part || kind == OpKind::kSend, bytes));
        // One of several, or there and back.
        seconds /= static_cast<double>(std::max<std::size_t>(program.ops.size(), 1));
        if (kind == OpKind::kSend) {
          messages[members.between][bytes] = seconds;
        }
        machine.collectives[key][bytes] = seconds;
      }
      if (reports)
        log_info("{} among {} {}: {} in {:.3f} ms", name_of(kind), members.ranks.size(),
                 members.between ? "nodes or more" : "ranks of a node",
                 human_bytes(static_cast<double>(sizes.back())),
                 machine.collectives[key][sizes.back()] * 1e3);
    }
  }
  QT_TRY(measure_side_by_side(options, world, nodes, machine));
  if (reports && messages.contains(false)) set_link(machine.inside, messages[false]);
  if (reports && messages.contains(true)) set_link(machine.between, messages[true]);
  const auto across = std::find_if(groups.begin(), groups.end(),
                                   [](const Members& members) { return members.between; });
  if (options.device.device == Device::kCpu && across != groups.end())
    QT_TRY(measure_thread(options, world, *across, machine));
  if (!reports) return {};
  machine.node.nodes = std::max(machine.node.nodes, static_cast<std::int64_t>(nodes.size()));
  machine.node.devices =
      std::max(machine.node.devices, static_cast<std::int64_t>(nodes.front().size()));
  return write_file(options.out, machine.to_toml());
}

}  // namespace quintet
