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

}  // namespace

void inject_fault(std::int32_t rank, std::int64_t step) {
  static const Order order = read_order();
  if (rank != order.rank || step != order.step) return;
  if (!order.once.empty()) {
    const int file = ::open(order.once.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0) return;
    ::close(file);
  }
  if (order.kind == "throw") throw std::runtime_error("a fault on order (QUINTET_FAULT)");
  if (order.kind == "memory") throw std::bad_alloc();
  if (order.kind == "exit") ::_exit(0);
  if (order.kind == "kill") ::raise(SIGKILL);
  while (order.kind == "hang") ::pause();
}

}  // namespace quintet
