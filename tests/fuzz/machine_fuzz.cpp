// Machine files.
#include "base/check.h"
#include "lab/machine.h"
#include "tests/fuzz/fuzz.h"

using namespace quintet;  // NOLINT: a test of the whole surface

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto machine = Machine::parse(text, "fuzz");
  if (!machine.ok()) {
    QT_CHECK(
        machine.error().code == ErrorCode::kUsage && machine.error().message.starts_with("fuzz:"),
        "a refusal that does not say where: {}", machine.error().message);
    return 0;
  }
  // What was accepted can be written and read again, and its rates can be divided by.
  const std::string written = machine.value().to_toml();
  const auto again = Machine::parse(written, "again");
  QT_CHECK(again.ok(), "{}", again.error().message);
  QT_CHECK(again.value().to_toml() == written, "a round trip changed the machine");
  QT_CHECK(machine.value().flops_per_second(DType::kBF16) > 0 &&
               machine.value().memory_bytes_per_second() > 0,
           "rates that are not positive");
  return 0;
}

std::vector<std::string> seeds() {
  return {
      R"([machine]
name = "m"
[device]
kind = "cuda"
sm = 90
memory_gib = 80
cache_mib = 50
fp32_tflop_per_s = 60
bf16_tflop_per_s = 1000
memory_gb_per_s = 4000
copy_in_gb_per_s = 50
copy_out_gb_per_s = 40
copy_latency_us = 10
op_us = 2
launch_us = 4
measured = ["sm"]
[node]
nodes = 2
devices = 8
cores = 64
host_memory_gib = 1024
[inside]
latency_us = 2
gb_per_s = 300
links = 1
[between]
latency_us = 5
gb_per_s = 25
links = 8
[sharing]
beside_ranks = ["2 memory 1.5"]
[collectives]
measured_us = ["all_reduce inside 4 1000 10"]
[ops]
measured_us = ["matmul nt:bf16:bf16 1024x512x512 10 8", "copy in 4096 3"]
)",
      R"([machine]
name = "c"
[device]
kind = "cpu"
memory_gib = 8
cache_mib = 30
fp32_tflop_per_s = 0.1
bf16_tflop_per_s = 0.1
memory_gb_per_s = 20
op_us = 1
[node]
nodes = 1
devices = 1
cores = 2
host_memory_gib = 8
)"};
}
