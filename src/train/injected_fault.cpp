#include "train/injected_fault.h"

#include <csignal>
#include <cstdlib>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace quintet {
namespace {

struct Order {
  std::string kind;
  std::int32_t rank = -1;
  std::int64_t step = -1;
  std::string once;  // a file
};

Order read_order() {
  Order order;
  if (const char* text = std::getenv("QUINTET_FAULT"); text != nullptr)
    std::istringstream(text) >> order.kind >> order.rank >> order.step >> order.once;
  return order;
}

const Order& the_order() {
  static const Order order = read_order();
  return order;
}

}  // namespace

bool data_fault(const char* kind, std::int64_t first_sample, std::int64_t global_batch) {
  return the_order().kind == kind && first_sample / global_batch + 1 == the_order().step;
}

void scramble(Batch& batch, std::int64_t first_sample, std::int64_t vocabulary) {
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] < 0) continue;
    auto mixed = static_cast<std::uint64_t>(first_sample * batch.target_length) + i;
    mixed = (mixed ^ (mixed >> 31)) * 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9u;
    batch.labels[i] =
        static_cast<std::int32_t>((mixed >> 33) % static_cast<std::uint64_t>(vocabulary));
  }
}

void inject_stall(std::int32_t rank, std::int64_t step) {
  const Order& order = the_order();
  while (order.kind == "stall" && rank == order.rank && step == order.step) ::pause();
}

void inject_fault(std::int32_t rank, std::int64_t step) {
  const Order& order = the_order();
  if (rank != order.rank || step != order.step || order.kind == "stall") return;
  if (!order.once.empty()) {
    const int file = ::open(order.once.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0) return;
    ::close(file);
  }
  if (order.kind == "throw") throw std::runtime_error("a fault on order (QUINTET_FAULT)");
  if (order.kind == "memory") throw std::bad_alloc();
  if (order.kind == "exit") ::_exit(0);
  if (order.kind == "kill") ::raise(SIGKILL);
  if (order.kind == "stop") ::raise(SIGSTOP);
  while (order.kind == "hang") ::pause();
}

}  // namespace quintet
