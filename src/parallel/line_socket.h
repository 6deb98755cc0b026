// Lines of text over TCP, without ever blocking; numeric addresses only. For the watchdog.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace quintet {

// A connection; closed when destroyed.
class LineSocket {
 public:
  LineSocket() = default;
  explicit LineSocket(int descriptor) : descriptor_(descriptor) {}
  LineSocket(LineSocket&& other) noexcept { *this = std::move(other); }
  LineSocket& operator=(LineSocket&& other) noexcept;
  LineSocket(const LineSocket&) = delete;
  LineSocket& operator=(const LineSocket&) = delete;
  ~LineSocket() { close(); }

  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void close();

  // Reads what is there. False when the connection is closed, or the peer sends a line longer than
  // any that is meant for us.
  bool read();
  bool next_line(std::string& line);
  // Queues a line and sends what can be sent now. A peer that is gone shows when we read.
  void send(std::string_view line);
  void flush();
  // Nothing more will be sent; the peer reads to the end.
  void end_sending();

 private:
  int descriptor_ = -1;
  std::string in_, out_;
};

struct Endpoint {
  std::string address;  // numeric
  int port = 0;
};

// Listens at a free port of an address.
Result<LineSocket> listen_at(const std::string& address, Endpoint& endpoint);
// A connection that somebody made, or none.
LineSocket accept_from(const LineSocket& listener);
// Connects within so many seconds.
Result<LineSocket> connect_to(const Endpoint& endpoint, double seconds);

// Waits until one of the descriptors can be read, or so long.
void wait_for_any(const std::vector<int>& descriptors, int milliseconds);

}  // namespace quintet
