#include "parallel/watchdog.h"

#include <cerrno>
#include <cstring>
#include <sstream>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

// The conversation, in lines of text:
//   to rank 0:    "H <rank>" hello, "B <step>" alive, "F <step> <why>" failing, "Q" goodbye
//   from rank 0:  "P" alive, "L <rank> <step> <how>" that rank is lost

namespace quintet {
namespace {

constexpr int kBeatMilliseconds = 200;

void send_line(int socket, const std::string& line) {
  const std::string text = line + "\n";
  // A peer that is gone shows when we read; a full buffer only costs a beat.
  static_cast<void>(::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

// A connection with what has been read of an unfinished line.
struct Peer {
  int socket = -1;
  std::int64_t rank = -1;
  std::int64_t step = 0;
  double last_heard = 0;
  bool done = false;
  std::string buffer;

  // Reads what is there; false when the connection is closed.
  bool read() {
    char chunk[4096];
    const ssize_t got = ::recv(socket, chunk, sizeof chunk, MSG_DONTWAIT);
    if (got > 0) {
      buffer.append(chunk, static_cast<std::size_t>(got));
      last_heard = now();
      return true;
    }
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  }
  bool next_line(std::string& line) {
    const std::size_t end = buffer.find('\n');
    if (end == std::string::npos) return false;
    line = buffer.substr(0, end);
    buffer.erase(0, end + 1);
    return true;
  }
};

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

// The text after the first `words` words.
std::string rest_of(const std::string& line, int words) {
  std::size_t at = 0;
  for (int i = 0; i < words && at != std::string::npos; ++i) {
    at = line.find(' ', at);
    if (at != std::string::npos) ++at;
  }
  return at == std::string::npos ? "" : line.substr(at);
}

Result<int> listen_somewhere(int& port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof address;
  if (socket < 0 || ::bind(socket, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(socket, 4096) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return io_error("watchdog: cannot listen: {}", std::strerror(errno));
  }
  port = ntohs(address.sin_port);
  return socket;
}

Result<int> connect_to(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  const std::string name = host == host_name() ? "127.0.0.1" : host;
  if (const int code = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
      code != 0) {
    return io_error("watchdog: cannot find {}: {}", name, ::gai_strerror(code));
  }
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = socket >= 0 && ::connect(socket, found->ai_addr, found->ai_addrlen) == 0;
  ::freeaddrinfo(found);
  if (!connected)
    return io_error("watchdog: cannot reach {}:{}: {}", name, port, std::strerror(errno));
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

}  // namespace

Result<std::unique_ptr<Watchdog>> Watchdog::start(World& world, double timeout) {
  std::unique_ptr<Watchdog> dog(new Watchdog);
  dog->rank_ = world.rank();
  dog->size_ = world.size();
  dog->timeout_ = timeout;
  if (world.size() == 1) return dog;
  int port = 0;
  if (world.rank() == 0) {
    QT_ASSIGN(dog->socket_, listen_somewhere(port));
  }
  std::istringstream address(world.broadcast(fmt::format("{} {}", host_name(), port)));
  std::string host;
  address >> host >> port;
  if (world.rank() != 0) {
    QT_ASSIGN(dog->socket_, connect_to(host, port));
    send_line(dog->socket_, fmt::format("H {}", world.rank()));
  }
  dog->thread_ =
      std::thread([raw = dog.get()] { raw->rank_ == 0 ? raw->run_server() : raw->run_client(); });
  return dog;
}

Watchdog::~Watchdog() {
  finish();
  if (socket_ >= 0) ::close(socket_);
}

void Watchdog::finish() {
  if (!thread_.joinable()) return;
  stop_ = true;
  thread_.join();
}

void Watchdog::fail(const std::string& why) {
  if (!thread_.joinable()) return;
  why_ = why;
  for (char& c : why_) {
    if (c == '\n') c = ' ';
  }
  failed_ = true;
  finish();
}

void Watchdog::end_process(std::int64_t lost_rank, std::int64_t step,
                           const std::string& how) const {
  fmt::print(stderr, "quintet: rank {}: rank {} {} in step {}; ending\n", rank_, lost_rank, how,
             step);
  std::fflush(stderr);
  // Not exit(): its handlers would wait for MPI, which waits for the lost rank.
  ::_exit(static_cast<int>(ErrorCode::kPeerLost));
}

void Watchdog::run_server() {
  std::vector<Peer> peers;
  const auto tell = [&](std::int64_t rank, std::int64_t step, const std::string& how) {
    for (const Peer& peer : peers) {
      if (peer.socket >= 0 && !peer.done)
        send_line(peer.socket, fmt::format("L {} {} {}", rank, step, how));
    }
  };
  const auto lost = [&](const Peer& peer, const std::string& how) {
    tell(peer.rank, peer.step, how);
    end_process(peer.rank, peer.step, how);
  };
  double last_beat = 0, started = now();
  while (true) {
    std::vector<pollfd> fds = {{socket_, POLLIN, 0}};
    for (const Peer& peer : peers) {
      if (peer.socket >= 0) fds.push_back({peer.socket, POLLIN, 0});
    }
    ::poll(fds.data(), fds.size(), kBeatMilliseconds / 2);
    if ((fds[0].revents & POLLIN) != 0) {
      Peer peer;
      peer.socket = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      peer.last_heard = now();
      if (peer.socket >= 0) peers.push_back(peer);
    }
    std::int32_t done = 0;
    for (Peer& peer : peers) {
      if (peer.done) {
        ++done;
        continue;
      }
      const bool open = peer.read();
      std::string line;
      while (peer.next_line(line)) {
        std::istringstream words(line);
        char what = 0;
        words >> what;
        if (what == 'H') words >> peer.rank;
        if (what == 'B') words >> peer.step;
        if (what == 'F') {
          words >> peer.step;
          lost(peer, fmt::format("failed ({})", rest_of(line, 2)));
        }
        if (what == 'Q') peer.done = true;
      }
      if (peer.done) continue;
      if (!open) lost(peer, "was lost");
      if (now() - peer.last_heard > timeout_) {
        lost(peer, fmt::format("has been silent for {:.0f} s", timeout_));
      }
    }
    if (failed_) {
      tell(0, step_, fmt::format("failed ({})", why_));
      return;
    }
    // Everybody has a connection from the start; one that never came is as good as lost.
    if (static_cast<std::int32_t>(peers.size()) < size_ - 1 && now() - started > timeout_) {
      tell(0, step_, "waited in vain for all ranks");
      end_process(0, step_, "waited in vain for all ranks");
    }
    if (stop_ && done == size_ - 1) break;
    if (now() - last_beat > kBeatMilliseconds * 1e-3) {
      for (const Peer& peer : peers) {
        if (!peer.done) send_line(peer.socket, "P");
      }
      last_beat = now();
    }
  }
  for (const Peer& peer : peers) ::close(peer.socket);
}

void Watchdog::run_client() {
  Peer server;
  server.socket = socket_;
  server.rank = 0;
  server.last_heard = now();
  double last_beat = 0;
  while (!stop_) {
    pollfd fd{socket_, POLLIN, 0};
    ::poll(&fd, 1, kBeatMilliseconds / 2);
    const bool open = server.read();
    std::string line;
    while (server.next_line(line)) {
      if (line.empty() || line[0] != 'L') continue;
      std::istringstream words(line);
      char what = 0;
      std::int64_t rank = 0, step = 0;
      words >> what >> rank >> step;
      end_process(rank, step, rest_of(line, 3));
    }
    if (!open) end_process(0, step_, "was lost");
    if (now() - server.last_heard > timeout_) {
      end_process(0, step_, fmt::format("has been silent for {:.0f} s", timeout_));
    }
    if (now() - last_beat > kBeatMilliseconds * 1e-3) {
      send_line(socket_, fmt::format("B {}", step_.load()));
      last_beat = now();
    }
  }
  if (failed_) {
    send_line(socket_, fmt::format("F {} {}", step_.load(), why_));
  } else {
    send_line(socket_, "Q");
  }
}

}  // namespace quintet
