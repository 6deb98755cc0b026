// What an emulated link carries, measured: a plain TCP transfer between two nodes.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "lab/cluster.h"

namespace quintet {
namespace {

class Socket {
 public:
  explicit Socket(int file = -1) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (file_ >= 0) ::close(file_);
  }
  int file() const { return file_; }

 private:
  int file_;
};

// A socket of a node. Which network a socket belongs to is decided where it is made, so a thread
// enters the node, makes it, and is gone.
Result<Socket> socket_on(const ClusterNode& node) {
  int made = -1, problem = 0;
  std::thread([&] {
    const int space = ::open(("/var/run/netns/" + node.space).c_str(), O_RDONLY | O_CLOEXEC);
    if (space >= 0 && ::setns(space, CLONE_NEWNET) == 0) {
      made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    problem = errno;
    if (space >= 0) ::close(space);
  }).join();
  if (made < 0) return io_error("no socket on {}: {}", node.space, std::strerror(problem));
  return Socket(made);
}

sockaddr_in address_on(const ClusterNode& node) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, node.address.c_str(), &address.sin_addr);
  return address;
}

}  // namespace

bool node_answers(const Cluster& cluster, int from, int to) {
  auto made = socket_on(cluster.nodes[static_cast<std::size_t>(from)]);
  if (!made.ok()) return false;
  const Socket socket = std::move(made).value();
  const timeval patience{2, 0};
  ::setsockopt(socket.file(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  sockaddr_in address = address_on(cluster.nodes[static_cast<std::size_t>(to)]);
  address.sin_port = htons(9);
  // Nobody listens there; a node that says so is a node that answers.
  return ::connect(socket.file(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ||
         errno == ECONNREFUSED;
}

Result<double> measure_link(const Cluster& cluster, int from, int to, double seconds) {
  const ClusterNode& receiver = cluster.nodes[static_cast<std::size_t>(to)];
  QT_ASSIGN(Socket listener, socket_on(receiver));
  QT_ASSIGN(Socket sender, socket_on(cluster.nodes[static_cast<std::size_t>(from)]));
  sockaddr_in address = address_on(receiver);
  socklen_t length = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.file(), raw, length) != 0 || ::listen(listener.file(), 1) != 0 ||
      ::getsockname(listener.file(), raw, &length) != 0) {
    return io_error("link check: cannot listen on {}: {}", receiver.space, std::strerror(errno));
  }
  // A link that leads nowhere must not hold us up.
  const timeval patience{5, 0};
  ::setsockopt(sender.file(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(sender.file(), raw, length) != 0) {
    return io_error("link check: node {} cannot reach node {}: {}", from, to, std::strerror(errno));
  }
  Socket accepted(::accept4(listener.file(), nullptr, nullptr, SOCK_CLOEXEC));
  if (accepted.file() < 0) return io_error("link check: accept: {}", std::strerror(errno));
  ::setsockopt(accepted.file(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);

  std::atomic<bool> enough = false;
  std::thread source([&] {
    const std::vector<char> chunk(1 << 18);
    while (!enough && ::send(sender.file(), chunk.data(), chunk.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  // The bucket's first contents and the window's growth are no part of it.
  const double began = now(), from_time = began + 0.3 * seconds, until = from_time + seconds;
  double first = 0, last = 0, bytes = 0;
  std::vector<char> chunk(1 << 18);
  while (last < until) {
    const ssize_t got = ::recv(accepted.file(), chunk.data(), chunk.size(), 0);
    if (got <= 0) break;
    last = now();
    if (first > 0) {
      bytes += static_cast<double>(got);
    } else if (last >= from_time) {
      first = last;
    }
  }
  enough = true;
  ::shutdown(accepted.file(), SHUT_RDWR);
  ::shutdown(sender.file(), SHUT_RDWR);
  source.join();
  if (bytes == 0) return io_error("link check: nothing came from node {} to node {}", from, to);
  return bytes * 8 / (last - first);
}

Result<std::vector<LinkCheck>> check_links(Cluster& cluster,
                                           const std::vector<double>& bandwidths) {
  std::vector<LinkCheck> checks;
  if (cluster.spec.nodes < 2) return checks;
  for (const double asked : bandwidths) {
    QT_TRY(shape_links(cluster, asked));
    LinkCheck check{asked, 0};
    // A busy moment may spoil a measurement, not three.
    for (int attempt = 0; attempt < 3; ++attempt) {
      QT_ASSIGN(const double measured, measure_link(cluster, 0, cluster.spec.nodes - 1));
      if (std::abs(measured - asked) < std::abs(check.measured - asked)) check.measured = measured;
      if (std::abs(check.measured / asked - 1) <= kLinkTolerance) break;
    }
    if (std::abs(check.measured / asked - 1) > kLinkTolerance) {
      return make_error(ErrorCode::kMismatch,
                        "the links were told to carry {} and carry {}: {:+.1f} %, more than the "
                        "{:.0f} % that a study allows. A busy machine or one too slow for this "
                        "bandwidth does that",
                        bandwidth_text(asked), bandwidth_text(check.measured),
                        100 * (check.measured / asked - 1), 100 * kLinkTolerance);
    }
    checks.push_back(check);
  }
  return checks;
}

}  // namespace quintet
