#include "lab/calibrate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "lab/op_timing.h"
#include "program/shards.h"
#include "train/run_config.h"

namespace quintet {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024, kMiB = 1024.0 * 1024;

// Distinct ops that were asked for together: of one model with one micro-batch, of one optimizer.
struct Session {
  struct Wanted {
    std::size_t program;  // index into `programs`
    OpId op;
    OpKey key;
    std::int64_t count = 0;  // how often a step has it
  };
  std::string name;
  bool in_steps = true;  // what real steps have
  std::vector<Program> programs;
  std::vector<Wanted> wanted;

  void add(Program program, const std::function<bool(const Op&)>& is_wanted) {
    std::map<OpKey, std::size_t> known;
    for (std::size_t i = 0; i < wanted.size(); ++i) known.emplace(wanted[i].key, i);
    programs.push_back(std::move(program));
    const Program& added = programs.back();
    for (std::size_t i = 0; i < added.ops.size(); ++i) {
      const Op& op = added.ops[i];
      if (is_communication(op.kind) || !is_wanted(op)) continue;
      const OpKey key = key_of(added, op);
      const auto [entry, is_new] = known.try_emplace(key, wanted.size());
      if (is_new) wanted.push_back({programs.size() - 1, static_cast<OpId>(i), key});
      ++wanted[entry->second].count;
    }
  }
};

Result<StepOptions> options_of(const CalibrateOptions& options, const std::string& model,
                               std::int64_t micro_batch, const std::string& optimizer,
                               double offload) {
  RunConfig config;
  config.model.name = model;
  config.batch.micro_batch = micro_batch;
  config.batch.accumulate = options.accumulate;
  config.batch.source = options.source;
  config.batch.target = options.target;
  config.train.precision = options.precision;
  config.train.device = options.device.device == Device::kCuda ? "cuda" : "cpu";
  config.train.threads = options.device.threads;
  config.parallel.tp = options.tp;
  std::size_t plus = optimizer.find('+');
  config.optimizer.name = optimizer.substr(0, plus);
  if (config.optimizer.name != "adamw" && config.optimizer.name != "adafactor")
    return usage_error("optimizer {}: expected adamw or adafactor, +remainder where wanted",
                       optimizer);
  while (plus != std::string::npos) {
    const std::size_t next = optimizer.find('+', plus + 1);
    const std::string part = optimizer.substr(plus + 1, next - plus - 1);
    if (part == "fp32" || part == "remainder") {
      config.optimizer.master = part;
    } else if (part == "bf16" || part == "8bit") {
      config.optimizer.moments = part;
    } else {
      return usage_error(
          "optimizer {}: expected +fp32 or +remainder (master weights), +bf16 or +8bit (moments)",
          optimizer);
    }
    plus = next;
  }
  config.optimizer.offload = offload;
  return step_options(config, options.tp);
}

bool is_update(const Op& op) {
  return op.tag.phase == Phase::kUpdate;
}

// A session for each model with each micro-batch, then one for each model's updates.
Result<std::vector<Session>> sessions_of(const CalibrateOptions& options,
                                         std::int64_t memory_bytes) {
  std::vector<Session> sessions;
  for (const std::string& model : options.models) {
    for (const std::int64_t micro_batch : options.micro_batches) {
      QT_ASSIGN(StepOptions step, options_of(options, model, micro_batch, "adamw", 0));
      step.update = false;
      Session session;
      session.name = fmt::format("{}, micro-batch {}", model, micro_batch);
      Program program = compile_step(step);
      // Weights, gradients and activations alone are more than there is: no step has these shapes.
      if (options.device.device == Device::kCuda && program.arena_bytes > memory_bytes) {
        log_info("{}: does not fit this device, left out", session.name);
        continue;
      }
      session.add(std::move(program), [](const Op& op) { return !is_update(op); });
      sessions.push_back(std::move(session));
    }
    for (const std::string& optimizer : options.optimizers) {
      if (options.precision == "fp32" && optimizer.find("+remainder") != std::string::npos)
        continue;
      Session session;
      session.name = fmt::format("{}, {}", model, optimizer);
      for (const double offload : {0.0, 1.0}) {
        if (offload > 0 && !optimizer.starts_with("adamw")) continue;  // has no ops of its own
        QT_ASSIGN(const StepOptions step, options_of(options, model, 1, optimizer, offload));
        session.add(compile_step(step), is_update);
      }
      sessions.push_back(std::move(session));
    }
  }
  return sessions;
}

Op product_op(Program& program, bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
              DType dtype) {
  const auto tensor = [&](std::int64_t rows, std::int64_t cols) {
    return program.add_tensor({"t", Shape{rows, cols}, dtype, Storage::kActivation});
  };
  Op op;
  op.kind = OpKind::kMatmul;
  op.attrs = MatmulAttrs{ta, tb};
  op.inputs = {ta ? tensor(k, m) : tensor(m, k), tb ? tensor(n, k) : tensor(k, n), kNone};
  op.outputs = {tensor(m, n)};
  return op;
}

// Products of all sizes, far apart: what models that were not named are told from.
Session grid_session(const CalibrateOptions& options) {
  const bool cuda = options.device.device == Device::kCuda;
  const DType dtype = options.precision == "fp32" ? DType::kF32 : DType::kBF16;
  const std::vector<std::int64_t> sizes =
      cuda ? std::vector<std::int64_t>{512, 2048, 8192} : std::vector<std::int64_t>{64, 256, 1024};
  Program program;
  for (const auto& [ta, tb] : {std::pair{false, true}, {false, false}, {true, false}}) {
    for (const std::int64_t m : sizes)
      for (const std::int64_t n : sizes)
        for (const std::int64_t k : sizes)
          program.ops.push_back(product_op(program, ta, tb, m, n, k, dtype));
  }
  Session session;
  session.name = "products of many sizes";
  session.in_steps = false;
  session.add(std::move(program), [](const Op&) { return true; });
  return session;
}

class Calibration {
 public:
  explicit Calibration(const CalibrateOptions& options)
      : options_(options), world_(make_single_world()), began_(now()) {}

  Status run() {
    QT_TRY(device_available(options_.device.device));
    QT_TRY(open());
    QT_ASSIGN(std::vector<Session> sessions, sessions_of(options_, facts_.memory_bytes));
    if (options_.grid) sessions.push_back(grid_session(options_));
    drop_known(sessions);
    std::size_t left = 0;
    for (const Session& session : sessions) left += session.wanted.size();
    log_info("{}: {} distinct ops to measure, {} are in {} already", machine_.name, left,
             machine_.ops.size(), options_.out);
    if (machine_.device.measured.empty()) {
      QT_TRY(measure_device());
      QT_TRY(save());
    }
    double spent = 0;
    std::size_t done = 0;
    for (Session& session : sessions) {
      if (session.wanted.empty()) continue;
      if (options_.limit > 0 && now() - began_ > options_.limit) {
        log_info("stopped after {}: {} of {} ops are left; the same command goes on from there",
                 human_duration(now() - began_), left - done, left);
        return {};
      }
      const double start = now();
      QT_TRY(measure(session));
      done += session.wanted.size();
      spent += now() - start;
      QT_TRY(save());
      log_info(
          "{}: {} ops in {:.1f} s; {} of {}, {} left", session.name, session.wanted.size(),
          now() - start, done, left,
          human_duration(spent / static_cast<double>(done) * static_cast<double>(left - done)));
      session.programs.clear();
    }
    set_efficiencies();
    QT_TRY(save());
    log_info("{}: {} ops in {}", options_.out, machine_.ops.size(), human_duration(now() - began_));
    return {};
  }

 private:
  Status open() {
    QT_ASSIGN(facts_, device_facts(options_.device.device));
    std::error_code ignored;
    if (std::filesystem::exists(options_.out, ignored)) {
      QT_ASSIGN(machine_, Machine::load(options_.out));
      if (machine_.kind() != options_.device.device || machine_.device.sm != facts_.sm ||
          (machine_.kind() == Device::kCpu && machine_.device.threads != options_.device.threads)) {
        return usage_error("{} is about another device ({}, sm {}, {} threads): give another --out",
                           options_.out, machine_.device.kind, machine_.device.sm,
                           machine_.device.threads);
      }
      return {};
    }
    const bool cuda = options_.device.device == Device::kCuda;
    machine_.name = options_.name.empty() ? facts_.name : options_.name;
    machine_.note = fmt::format("measured by quintet calibrate on {}", facts_.name);
    DeviceSection& d = machine_.device;
    d.kind = cuda ? "cuda" : "cpu";
    d.sm = facts_.sm;
    d.threads = cuda ? 0 : options_.device.threads;
    d.memory_gib = static_cast<double>(facts_.memory_bytes) / kGiB;
    d.cache_mib = static_cast<double>(facts_.cache_bytes) / kMiB;
    machine_.node.devices = facts_.devices;
    machine_.node.cores = std::max(1u, std::thread::hardware_concurrency());
    struct sysinfo system {};
    ::sysinfo(&system);
    machine_.node.host_memory_gib =
        static_cast<double>(system.totalram) * static_cast<double>(system.mem_unit) / kGiB;
    // Links are measured by several ranks; until then what every machine has is assumed.
    machine_.inside.latency_us = cuda ? 10 : 1;
    machine_.inside.gb_per_s = cuda ? 50 : 5;
    return {};
  }
  Status save() const { return write_file(options_.out, machine_.to_toml()); }

  void drop_known(std::vector<Session>& sessions) const {
    std::set<OpKey> seen;
    for (Session& session : sessions) {
      std::erase_if(session.wanted, [&](const Session::Wanted& w) {
        return machine_.ops.contains(w.key) || !seen.insert(w.key).second;
      });
    }
  }

  Status measure(const Session& session) {
    Probe probe(options_.device);
    std::vector<TimedOp> timed;
    std::vector<const OpKey*> keys;
    const auto room = static_cast<double>(free_bytes(options_.device.device)) * 0.9;
    for (const Session::Wanted& w : session.wanted) {
      const Program& program = session.programs[w.program];
      const Op& op = program.ops[static_cast<std::size_t>(w.op)];
      if (bytes_of(program, op) + 1e9 > room) {
        log_warning("{} needs more memory than there is: not measured", w.key.str());
        continue;
      }
      timed.push_back(
          {probe.add(program, op, machine_.cache_bytes()), static_cast<double>(w.count), {}});
      keys.push_back(&w.key);
    }
    if (timed.empty()) return {};
    QT_TRY(probe.start(*world_));
    QT_TRY(time_ops(probe, timed, machine_.cache_bytes(), near_bytes()));
    for (std::size_t i = 0; i < timed.size(); ++i) {
      machine_.ops.add(*keys[i], timed[i].seconds);
      if (!session.in_steps) continue;
      const Op& op = probe.program().ops[static_cast<std::size_t>(timed[i].copies.front())];
      Reached& reached = reached_[class_of(op.kind)];
      reached.floor += timed[i].share * machine_.floor_seconds(probe.program(), op);
      reached.seconds += timed[i].share * timed[i].seconds.cold;
    }
    return {};
  }

  // The cache of a CPU's core, as sums feel it. Its last level is shared, with other machines even,
  // and what the system calls its size is often another: sums over more and more bytes tell. The
  // bytes at which half of them is found in the cache are half of what it takes to find none
  // (machine.cpp has them fall in a straight line).
  Status measure_cache() {
    Program program;
    Probe probe(options_.device);
    std::vector<TimedOp> timed;
    std::vector<double> sizes;
    for (double mib = 1; mib <= 256; mib *= 2) {
      sizes.push_back(mib * kMiB);
      const auto elements = static_cast<std::int64_t>(mib * kMiB / 12);
      const auto tensor = [&] {
        return program.add_tensor({"t", Shape{elements}, DType::kF32, Storage::kActivation});
      };
      Op op;
      op.kind = OpKind::kAdd;
      op.inputs = {tensor(), tensor()};
      op.outputs = {tensor()};
      timed.push_back({probe.add(program, op, 0), 1, {}});
    }
    QT_TRY(probe.start(*world_));
    QT_TRY(time_ops(probe, timed, 0));
    const auto per_byte = [&](std::size_t i) { return timed[i].seconds.cold / sizes[i]; };
    const double half = (per_byte(0) + per_byte(sizes.size() - 1)) / 2;
    std::size_t above = 1;
    while (above + 1 < sizes.size() && per_byte(above) < half) ++above;
    const double share = std::clamp(
        (half - per_byte(above - 1)) / std::max(per_byte(above) - per_byte(above - 1), 1e-15), 0.0,
        1.0);
    machine_.device.cache_mib = 2 * sizes[above - 1] * std::exp2(share) / kMiB;
    return {};
  }

  // A core's own caches, where another one follows.
  double near_bytes() const {
    return options_.device.device == Device::kCuda ? 0 : static_cast<double>(facts_.cache_bytes);
  }

  // Rates of the device itself: large products, a large sum, copies, the smallest op.
  Status measure_device() {
    const bool cuda = options_.device.device == Device::kCuda;
    if (!cuda) QT_TRY(measure_cache());
    Program program;
    Probe probe(options_.device);
    const double cache = machine_.cache_bytes();
    const auto tensor = [&](std::int64_t elements, DType dtype, Storage storage) {
      return program.add_tensor({"t", Shape{elements}, dtype, storage});
    };
    std::vector<TimedOp> timed;
    const auto add = [&](const Op& op) {
      timed.push_back({probe.add(program, op, cache), 1, {}});
      return timed.size() - 1;
    };
    const auto simple = [&](OpKind kind, std::vector<TensorId> in, std::vector<TensorId> out,
                            Stream stream = Stream::kCompute) {
      Op op;
      op.kind = kind;
      op.inputs = std::move(in);
      op.outputs = std::move(out);
      op.stream = stream;
      return op;
    };
    const std::int64_t square[] = {cuda ? 4096 : 1024, cuda ? 8192 : 1024};
    const std::size_t fp32 =
        add(product_op(program, false, true, square[0], square[0], square[0], DType::kF32));
    const std::size_t bf16_product =
        add(product_op(program, false, true, square[1], square[1], square[1], DType::kBF16));
    const std::int64_t large = std::int64_t{1} << (cuda ? 28 : 24);
    const auto activation = [&](std::int64_t elements) {
      return tensor(elements, DType::kF32, Storage::kActivation);
    };
    const std::size_t sum =
        add(simple(OpKind::kAdd, {activation(large), activation(large)}, {activation(large)}));
    const std::size_t tiny = add(simple(OpKind::kZero, {}, {activation(64)}));
    std::vector<std::size_t> copies[2];  // in, out; 1 MiB to 256 MiB
    const std::vector<std::int64_t> megabytes =
        cuda ? std::vector<std::int64_t>{1, 4, 16, 64, 256} : std::vector<std::int64_t>{};
    for (const std::int64_t size : megabytes) {
      const TensorId host = tensor(size << 18, DType::kF32, Storage::kHost);
      const TensorId device = activation(size << 18);
      copies[0].push_back(add(simple(OpKind::kCopy, {host}, {device}, Stream::kCopyIn)));
      copies[1].push_back(add(simple(OpKind::kCopy, {device}, {host}, Stream::kCopyOut)));
    }
    log_info("measuring rates of {}", facts_.name);
    QT_TRY(probe.start(*world_));
    QT_TRY(time_ops(probe, timed, 0));
    DeviceSection& d = machine_.device;
    const auto rate = [&](std::size_t op, double work) { return work / timed[op].seconds.cold; };
    const auto cube = [](std::int64_t n) {
      return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    };
    d.fp32_tflop_per_s = rate(fp32, cube(square[0])) * 1e-12;
    d.bf16_tflop_per_s = rate(bf16_product, cube(square[1])) * 1e-12;
    d.memory_gb_per_s = rate(sum, 12.0 * static_cast<double>(large)) * 1e-9;
    d.op_us = timed[tiny].seconds.cold * 1e6;
    d.measured = {"memory_gib", "fp32_tflop_per_s", "bf16_tflop_per_s", "memory_gb_per_s", "op_us"};
    if (!cuda) {
      d.measured.emplace_back("cache_mib");
      d.copy_in_gb_per_s = d.copy_out_gb_per_s = d.memory_gb_per_s / 2;
      d.launch_us = d.op_us;
      return {};
    }
    const auto copy_rate = [&](int way) {
      return rate(copies[way].back(), static_cast<double>(megabytes.back() << 20)) * 1e-9;
    };
    d.copy_in_gb_per_s = copy_rate(0);
    d.copy_out_gb_per_s = copy_rate(1);
    d.copy_latency_us = std::max(
        0.0, timed[copies[0].front()].seconds.cold * 1e6 - 1.048576e3 / d.copy_in_gb_per_s);
    for (int way = 0; way < 2; ++way)
      for (const std::size_t copy : copies[way])
        machine_.ops.add(
            key_of(probe.program(),
                   probe.program().ops[static_cast<std::size_t>(timed[copy].copies.front())]),
            timed[copy].seconds);
    for (const char* key : {"copy_in_gb_per_s", "copy_out_gb_per_s", "copy_latency_us"})
      d.measured.emplace_back(key);
    QT_TRY(measure_overlap(probe, timed[sum], timed[copies[0][3]], timed[copies[1][3]]));
    return measure_launch();
  }

  // Copies beside computation of the kind they go on beside, updates, which memory bounds.
  Status measure_overlap(Probe& probe, const TimedOp& compute, const TimedOp& in,
                         const TimedOp& out) {
    const auto times = [](const TimedOp& op, double seconds) {
      const auto count = static_cast<std::size_t>(std::max(1.0, seconds / op.seconds.cold));
      return std::vector<OpId>(count, op.copies.front());
    };
    const auto together = [](std::vector<OpId> a, const std::vector<OpId>& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };
    const std::vector<OpId> short_compute = times(compute, 10e-3),
                            long_compute = times(compute, 30e-3);
    const std::vector<OpId> short_in = times(in, 10e-3), long_in = times(in, 30e-3);
    const std::vector<OpId> long_out = times(out, 30e-3);
    QT_ASSIGN(const double compute_alone, time_batch(probe, long_compute));
    QT_ASSIGN(const double in_alone, time_batch(probe, long_in));
    QT_ASSIGN(const double out_alone, time_batch(probe, long_out));
    QT_ASSIGN(const double both_ways, time_batch(probe, together(long_in, long_out)));
    QT_ASSIGN(const double mostly_compute, time_batch(probe, together(short_in, long_compute)));
    QT_ASSIGN(const double mostly_copy, time_batch(probe, together(long_in, short_compute)));
    // Only a part of the longer one had company.
    const double copied = in.seconds.cold * static_cast<double>(short_in.size());
    const double computed = compute.seconds.cold * static_cast<double>(short_compute.size());
    SharingSection& s = machine_.sharing;
    s.copy_both_ways = std::max(1.0, both_ways / std::max(in_alone, out_alone));
    s.compute_beside_copy = std::max(1.0, 1 + (mostly_compute - compute_alone) / copied);
    s.copy_beside_compute = std::max(1.0, 1 + (mostly_copy - in_alone) / computed);
    s.measured = {"copy_both_ways", "compute_beside_copy", "copy_beside_compute"};
    return {};
  }

  // The host's part when ops are launched one by one: the smallest ones come no faster than that.
  Status measure_launch() {
    Target eager = options_.device;
    eager.graph = false;
    Probe probe(eager);
    Program program;
    Op op;
    op.kind = OpKind::kZero;
    op.outputs = {program.add_tensor({"t", Shape{64}, DType::kF32, Storage::kActivation})};
    const std::vector<OpId> copies = probe.add(program, op, 0);
    QT_TRY(probe.start(*world_));
    constexpr std::size_t kLaunches = 1000;
    QT_ASSIGN(const double seconds,
              time_batch(probe, std::vector<OpId>(kLaunches, copies.front())));
    machine_.device.launch_us = seconds / kLaunches * 1e6;
    machine_.device.measured.emplace_back("launch_us");
    return {};
  }

  // What each class reaches of its roofline, over the models' ops as often as a step has them.
  void set_efficiencies() {
    EfficiencySection& e = machine_.efficiency;
    const std::pair<OpClass, double*> places[] = {
        {OpClass::kProduct, &e.product}, {OpClass::kAttention, &e.attention},
        {OpClass::kLoss, &e.loss},       {OpClass::kMemory, &e.memory},
        {OpClass::kLookup, &e.lookup},   {OpClass::kUpdate, &e.update}};
    for (const auto& [op_class, place] : places) {
      const auto found = reached_.find(op_class);
      if (found == reached_.end()) continue;
      *place = std::clamp(found->second.floor / found->second.seconds, 0.001, 1.5);
      const std::string name(name_of(op_class));
      if (std::find(e.measured.begin(), e.measured.end(), name) == e.measured.end())
        e.measured.push_back(name);
    }
  }

  const CalibrateOptions& options_;
  const std::unique_ptr<World> world_;
  const double began_;
  DeviceFacts facts_;
  Machine machine_;
  struct Reached {
    double floor = 0, seconds = 0;
  };
  std::map<OpClass, Reached> reached_;
};

}  // namespace

Status calibrate_ops(const CalibrateOptions& options) {
  return Calibration(options).run();
}

}  // namespace quintet
