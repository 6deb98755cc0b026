#include "parallel/hosts.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace quintet {
namespace {

// One word; a name of spaces would break the line it travels in.
std::string word_of(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c <= ' '; }, '_');
  return text.empty() ? "-" : text;
}

std::string linked(const char* path) {
  char target[256] = {};
  return ::readlink(path, target, sizeof target - 1) > 0 ? target : "";
}

}  // namespace

Host this_host() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // Without /proc the name has to do.
  return {word_of(name), word_of(boot.empty() ? name : boot),
          word_of(boot.empty() ? name : linked("/proc/self/ns/net"))};
}

std::vector<Host> hosts_of(World& world) {
  const Host mine = this_host();
  std::string all;
  for (const std::string& line :
       world.gather(fmt::format("{} {} {}\n", mine.name, mine.machine, mine.network)))
    all += line;
  std::istringstream words(world.broadcast(all));
  std::vector<Host> hosts;
  for (Host host; words >> host.name >> host.machine >> host.network;) hosts.push_back(host);
  return hosts;
}

std::vector<std::string> host_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 ||
        (entry->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr))
      continue;
    char text[NI_MAXHOST] = {};
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(entry->ifa_addr, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text);
  }
  ::freeifaddrs(list);
  return addresses;
}

}  // namespace quintet
