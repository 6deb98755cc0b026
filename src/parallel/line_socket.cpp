#include "parallel/line_socket.h"

#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace quintet {
namespace {

constexpr std::size_t kLongestLine = 1 << 16;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family = AF_UNSPEC;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Result<SocketAddress> parse_address(const Endpoint& endpoint) {
  SocketAddress address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, endpoint.address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<std::uint16_t>(endpoint.port));
    address.length = sizeof(sockaddr_in);
    address.family = AF_INET;
  } else if (::inet_pton(AF_INET6, endpoint.address.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<std::uint16_t>(endpoint.port));
    address.length = sizeof(sockaddr_in6);
    address.family = AF_INET6;
  } else {
    return io_error("{}: not a numeric address", endpoint.address);
  }
  return address;
}

void send_at_once(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

LineSocket& LineSocket::operator=(LineSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(in_, other.in_);
  std::swap(out_, other.out_);
  return *this;
}

void LineSocket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

bool LineSocket::read() {
  char chunk[4096];
  for (;;) {
    const ssize_t got = ::recv(descriptor_, chunk, sizeof chunk, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    in_.append(chunk, static_cast<std::size_t>(got));
    if (in_.size() > kLongestLine && in_.find('\n') == std::string::npos) return false;
    if (static_cast<std::size_t>(got) < sizeof chunk) return true;
  }
}

bool LineSocket::next_line(std::string& line) {
  const std::size_t end = in_.find('\n');
  if (end == std::string::npos) return false;
  line = in_.substr(0, end);
  in_.erase(0, end + 1);
  return true;
}

void LineSocket::send(std::string_view line) {
  out_ += line;
  out_ += '\n';
  flush();
}

void LineSocket::flush() {
  while (!out_.empty()) {
    const ssize_t put = ::send(descriptor_, out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    out_.erase(0, static_cast<std::size_t>(put));
  }
}

void LineSocket::end_sending() {
  flush();
  ::shutdown(descriptor_, SHUT_WR);
}

Result<LineSocket> listen_at(const std::string& address, Endpoint& endpoint) {
  endpoint = {address, 0};
  QT_ASSIGN(SocketAddress at, parse_address(endpoint));
  LineSocket listener(::socket(at.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.open() || ::bind(listener.descriptor(), at.get(), at.length) != 0 ||
      ::listen(listener.descriptor(), 4096) != 0 ||
      ::getsockname(listener.descriptor(), at.get(), &at.length) != 0) {
    return io_error("cannot listen at {}: {}", address, std::strerror(errno));
  }
  endpoint.port =
      ntohs(at.family == AF_INET ? reinterpret_cast<sockaddr_in*>(&at.storage)->sin_port
                                 : reinterpret_cast<sockaddr_in6*>(&at.storage)->sin6_port);
  return listener;
}

LineSocket accept_from(const LineSocket& listener) {
  const int made = ::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (made >= 0) send_at_once(made);
  return LineSocket(made);
}

Result<LineSocket> connect_to(const Endpoint& endpoint, double seconds) {
  QT_ASSIGN(SocketAddress to, parse_address(endpoint));
  LineSocket made(::socket(to.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto refused = [&](int cause) {
    return io_error("{} port {}: {}", endpoint.address, endpoint.port, std::strerror(cause));
  };
  if (!made.open()) return refused(errno);
  if (::connect(made.descriptor(), to.get(), to.length) != 0) {
    if (errno != EINPROGRESS) return refused(errno);
    pollfd ready{made.descriptor(), POLLOUT, 0};
    int polled = 0;
    do {
      polled = ::poll(&ready, 1, static_cast<int>(seconds * 1e3));
    } while (polled < 0 && errno == EINTR);
    if (polled <= 0) return refused(ETIMEDOUT);
    int cause = 0;
    socklen_t length = sizeof cause;
    ::getsockopt(made.descriptor(), SOL_SOCKET, SO_ERROR, &cause, &length);
    if (cause != 0) return refused(cause);
  }
  send_at_once(made.descriptor());
  return made;
}

void wait_for_any(const std::vector<int>& descriptors, int milliseconds) {
  std::vector<pollfd> all;
  for (const int descriptor : descriptors) all.push_back({descriptor, POLLIN, 0});
  ::poll(all.data(), all.size(), milliseconds);
}

}  // namespace quintet
