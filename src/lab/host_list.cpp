#include "lab/host_list.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <future>
#include <sstream>

#include <unistd.h>

#include "base/files.h"
#include "base/text.h"
#include "lab/tool.h"
#include "parallel/hosts.h"

namespace quintet {
namespace {

constexpr int kMostSlots = 1 << 20;

bool is_host_name(const std::string& name) {
  return !name.empty() && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
         });
}

bool read_slots(const std::string& text, int& slots) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, slots);
  return error == std::errc() && stop == end && slots >= 1 && slots <= kMostSlots;
}

void add_host(std::vector<HostSlots>& hosts, const HostSlots& host) {
  const auto same = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const HostSlots& other) { return other.name == host.name; });
  if (same == hosts.end()) {
    hosts.push_back(host);
  } else {
    same->slots = std::min(kMostSlots, same->slots + host.slots);
  }
}

bool is_this_machine(const std::string& name) {
  if (name == "localhost" || name.rfind("127.", 0) == 0) return true;
  const std::string own = this_host().name;
  if (name == own || name.substr(0, name.find('.')) == own.substr(0, own.find('.'))) return true;
  const auto addresses = host_addresses();
  return std::find(addresses.begin(), addresses.end(), name) != addresses.end();
}

std::vector<std::string> agent_words() {
  const char* given = std::getenv("OMPI_MCA_plm_rsh_agent");
  if (given == nullptr) return {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"};
  std::istringstream text(given);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

}  // namespace

Result<std::vector<HostSlots>> parse_hosts(const std::string& text) {
  std::vector<HostSlots> hosts;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    const std::size_t colon = item.find(':');
    HostSlots host{item.substr(0, colon), 1};
    if (!is_host_name(host.name) ||
        (colon != std::string::npos && !read_slots(item.substr(colon + 1), host.slots))) {
      return usage_error(
          "--hosts: \"{}\" is not a host; expected names with numbers of ranks, such as "
          "node1:8,node2:8",
          item);
    }
    add_host(hosts, host);
  }
  if (hosts.empty()) return usage_error("--hosts \"{}\" names no host", text);
  return hosts;
}

Result<std::vector<HostSlots>> read_hostfile(const std::string& path) {
  QT_ASSIGN(const std::string text, read_file(path));
  std::vector<HostSlots> hosts;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    HostSlots host;
    if (!(words >> host.name)) continue;
    const auto wrong = [&](const std::string& word) {
      return bad_input("{}:{}: \"{}\": expected a host and its ranks, such as node1 slots=8", path,
                       number, word);
    };
    if (!is_host_name(host.name)) return wrong(host.name);
    for (std::string word; words >> word;) {
      const std::size_t sign = word.find('=');
      const std::string key = word.substr(0, sign);
      if (key == "max_slots" || key == "max-slots") continue;
      if (key != "slots" || sign == std::string::npos ||
          !read_slots(word.substr(sign + 1), host.slots))
        return wrong(word);
    }
    add_host(hosts, host);
  }
  if (hosts.empty()) return bad_input("{}: names no host", path);
  return hosts;
}

std::string hosts_text(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> items;
  for (const HostSlots& host : hosts) items.push_back(fmt::format("{}:{}", host.name, host.slots));
  return join(items, ",");
}

std::vector<std::string> attached_daemons() {
  return {"--mca", "orte_leave_session_attached", "1"};
}

std::vector<HostSlots> answering_hosts(const std::vector<HostSlots>& hosts, double timeout) {
  const std::vector<std::string> agent = agent_words();
  std::vector<std::future<bool>> answers;
  for (const HostSlots& host : hosts) {
    answers.push_back(std::async(std::launch::async, [&] {
      if (is_this_machine(host.name)) return true;
      std::vector<std::string> line = agent;
      line.insert(line.end(), {host.name, "true"});
      return !agent.empty() && output_of(line, timeout).ok();
    }));
  }
  std::vector<HostSlots> there;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (answers[i].get()) there.push_back(hosts[i]);
  return there;
}

}  // namespace quintet
