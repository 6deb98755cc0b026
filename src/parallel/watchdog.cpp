#include "parallel/watchdog.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/index.h"
#include "base/text.h"
#include "parallel/hosts.h"
#include "parallel/outcome.h"

// The conversation, in lines of text:
//   to rank 0:    "quintet <secret> <rank>"                        hello
//                 "B <step> <waiting> <age> <limit> <still> <doing>"  alive, and how it is getting on
//                 "F <code> <consequence> <step> <error>"          cannot go on
//                 "Q"                                              done
//   from rank 0:  "welcome", "P" alive, "Q" all are done, "A" the run does not start,
//                 "L <code> <message>"                             the run ends

namespace quintet {
namespace {

constexpr int kTickMilliseconds = 100;
constexpr double kBeatSeconds = 0.2;
// A thread that was not run for longer than this was suspended, and its peers probably, too.
constexpr double kLongestTick = 0.5;
// For other ranks to say that they found the same, or for the cause behind a consequence. Less than
// the second after which mpirun kills what is left when one rank was killed.
constexpr double kGraceSeconds = 0.5;
constexpr double kHandshakeSeconds = 5;
constexpr double kConnectSeconds = 2;
constexpr std::size_t kMostStrangers = 64;
constexpr std::size_t kLongestText = 8000;
constexpr double kSlowerThanSteps = 5;
constexpr double kLongPatience = 20;

// Errors of several lines travel in one.
constexpr char kNewLine = '\v';
std::string one_line(std::string text) {
  text.resize(std::min(text.size(), kLongestText));
  std::replace(text.begin(), text.end(), '\n', kNewLine);
  return text;
}
std::string many_lines(std::string text) {
  std::replace(text.begin(), text.end(), kNewLine, '\n');
  return text;
}

// What follows the words read so far, and one space.
std::string rest_of(std::istringstream& words) {
  std::string rest;
  std::getline(words, rest);
  return rest.empty() ? rest : rest.substr(1);
}

std::string in_step(std::int64_t step) {
  return step == 0 ? "before the first step" : fmt::format("in step {}", step);
}

Result<std::string> make_secret() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return io_error("cannot draw a secret: {}", std::strerror(errno));
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Takes as long whatever is different.
bool same(std::string_view a, std::string_view b) {
  unsigned char different = a.size() != b.size() ? 1 : 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    different |= static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace

// ---- Starting.

Result<std::unique_ptr<Watchdog>> Watchdog::start(World& world, double timeout) {
  std::unique_ptr<Watchdog> dog(new Watchdog);
  dog->rank_ = world.rank();
  dog->size_ = world.size();
  dog->timeout_ = timeout;
  dog->last_tick_ = now();
  dog->wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (dog->wake_ < 0) return io_error("watchdog: {}", std::strerror(errno));
  if (::pthread_getcpuclockid(::pthread_self(), &dog->main_thread_) != 0)
    return io_error("watchdog: the main thread has no clock");
  const auto watch = [raw = dog.get()] {
    raw->thread_ = std::thread([raw] { raw->rank_ == 0 ? raw->run_hub() : raw->run_member(); });
  };
  dog->peers_.resize(index(dog->size_));
  if (world.size() == 1) {
    watch();
    return dog;
  }

  // 1. Who shares a host with whom; rank 0 listens where all can reach it.
  const std::vector<Host> hosts = hosts_of(world);
  const Host& mine = hosts[index(dog->rank_)];
  const auto first = std::find(hosts.begin() + 1, hosts.end(), mine);
  dog->speaks_ = dog->rank_ > 0 && first - hosts.begin() == dog->rank_;
  dog->patience_ = dog->rank_ <= 1 ? 0 : dog->speaks_ ? kGraceSeconds : 2 * kGraceSeconds;
  std::string announcement;
  if (dog->rank_ == 0) {
    const bool one_host = std::all_of(hosts.begin(), hosts.end(),
                                      [&](const Host& host) { return host.reaches_locally(mine); });
    const Result<std::string> opened = dog->open_listeners(one_host);
    announcement = opened.ok() ? opened.value() : "error " + opened.error().message;
    if (opened.ok()) watch();
  }
  // 2. All come, or say why they cannot.
  announcement = world.broadcast(announcement);
  if (announcement.rfind("error ", 0) == 0)
    return io_error("watchdog: {}", announcement.substr(std::strlen("error ")));
  const Status joined = dog->rank_ == 0 ? Status() : dog->join(announcement);
  // At once: from the welcome on rank 0 expects to hear of this rank, however late others come.
  if (dog->rank_ != 0 && joined.ok()) watch();
  std::string missing;
  const std::string mine_says = joined.ok() ? "" : joined.error().message;
  const auto all_say = world.gather(mine_says);
  for (std::size_t r = 0; r < all_say.size(); ++r) {
    if (!all_say[r].empty() && missing.empty())
      missing = fmt::format("rank {} on {} {}", r, hosts[r].name, all_say[r]);
  }
  if (!missing.empty()) dog->abandoned_ = true;
  missing = world.broadcast(missing);
  if (!missing.empty()) return io_error("watchdog: {}", missing);
  return dog;
}

Result<std::string> Watchdog::open_listeners(bool one_host) {
  QT_ASSIGN(secret_, make_secret());
  std::string announcement = fmt::format("{} {}", secret_, timeout_);
  std::string failures;
  for (const std::string& address :
       one_host ? std::vector<std::string>{"127.0.0.1"} : host_addresses()) {
    Endpoint endpoint;
    auto listener = listen_at(address, endpoint);
    if (listener.ok()) {
      announcement += fmt::format(" {} {}", endpoint.address, endpoint.port);
      listeners_.push_back(std::move(listener).value());
    } else {
      failures += "; " + listener.error().message;
    }
  }
  if (listeners_.empty())
    return io_error("rank 0 has no address that other hosts could reach{}", failures);
  return announcement;
}

// Tries all of rank 0's addresses; some may be those of networks that this host is not in, or has
// another machine in, which then does not know the secret.
Status Watchdog::join(const std::string& announcement) {
  std::istringstream words(announcement);
  words >> secret_ >> timeout_;
  std::vector<Endpoint> endpoints;
  for (Endpoint endpoint; words >> endpoint.address >> endpoint.port;)
    endpoints.push_back(endpoint);
  const double deadline = now() + std::max(timeout_, 3 * kConnectSeconds);
  std::vector<std::string> failures;
  do {
    failures.clear();
    for (const Endpoint& endpoint : endpoints) {
      auto made = connect_to(endpoint, kConnectSeconds);
      if (!made.ok()) {
        failures.push_back(made.error().message);
        continue;
      }
      hub_ = std::move(made).value();
      hub_.send(fmt::format("quintet {} {}", secret_, rank_));
      const double until = now() + kHandshakeSeconds;
      std::string line;
      bool open = true;
      while (open && now() < until && !hub_.next_line(line)) {
        wait_for_any({hub_.descriptor()}, kTickMilliseconds);
        open = hub_.read();
      }
      if (line == "welcome") return {};
      failures.push_back(
          fmt::format("{} port {}: somebody else answers", endpoint.address, endpoint.port));
    }
    ::usleep(kTickMilliseconds * 1000);
  } while (now() < deadline);
  return io_error("cannot reach rank 0 ({})", quintet::join(failures, "; "));
}

Watchdog::~Watchdog() {
  finish();
  if (wake_ >= 0) ::close(wake_);
}

// ---- What the main thread says.

void Watchdog::begin_step(std::int64_t step) {
  step_.store(step, std::memory_order_relaxed);
  step_began_ = shown_clock_.load(std::memory_order_relaxed);
}

void Watchdog::end_step() {
  // A tick more, since the clock is shown by ticks; never 0, which means that there was no step.
  const double took =
      shown_clock_.load(std::memory_order_relaxed) - step_began_ + kTickMilliseconds * 1e-3;
  longest_step_.store(std::max(longest_step_.load(std::memory_order_relaxed), took),
                      std::memory_order_relaxed);
  activity_.enter("between two steps", false, Activity::Patience::kLong);
}

void Watchdog::name_ops(std::function<std::string(std::int32_t)> name) {
  const std::lock_guard lock(mutex_);
  op_name_ = std::move(name);
}

Error Watchdog::fail(const Error& error, bool consequence) {
  if (size_ == 1 || !thread_.joinable()) {
    leave_outcome(error);
    return error;
  }
  {
    const std::lock_guard lock(mutex_);
    failure_ = Report{rank_, error.code, consequence, true, step_, one_line(error.message)};
  }
  wake();
  thread_.join();  // it ends the process
  return error;
}

void Watchdog::finish() {
  if (!thread_.joinable()) return;
  activity_.enter("waiting for all ranks to finish", true, Activity::Patience::kLong);
  stop_ = true;
  wake();
  thread_.join();
}

// ---- Both sides.

void Watchdog::tick() {
  const double time = now();
  // Others count from the last beat they heard, which may be older than the last tick.
  if (time - last_tick_ > std::max(kLongestTick, timeout_ - 3 * kBeatSeconds)) slept_at_ = clock_;
  clock_ += std::min(time - last_tick_, kLongestTick);
  last_tick_ = time;
  ::timespec ran{};
  ::clock_gettime(main_thread_, &ran);
  const std::int64_t main_ran = ran.tv_sec * 1'000'000'000 + ran.tv_nsec;
  if (main_ran != std::exchange(main_ran_, main_ran)) main_ran_at_ = clock_;
  shown_clock_.store(clock_, std::memory_order_relaxed);
}

Watchdog::Pulse Watchdog::take_pulse() {
  const Activity::Now doing = activity_.now();
  if (doing.count != seen_activity_) {
    seen_activity_ = doing.count;
    activity_since_ = clock_;
  }
  const double longest = longest_step_.load(std::memory_order_relaxed);
  const bool compares = doing.patience == Activity::Patience::kStep && longest > 0;
  Pulse pulse;
  pulse.step = step_.load(std::memory_order_relaxed);
  pulse.waiting = doing.waiting;
  pulse.age = clock_ - activity_since_;
  pulse.still = clock_ - main_ran_at_;
  pulse.limit =
      compares ? std::max(timeout_, kSlowerThanSteps * longest) : kLongPatience * timeout_;
  if (pulse.age < pulse.limit / 4) return pulse;
  const std::lock_guard lock(mutex_);
  pulse.doing = doing.op < 0 ? doing.what
                : op_name_   ? op_name_(doing.op)
                             : fmt::format("op {}", doing.op);
  return pulse;
}

void Watchdog::wake() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_, &one, sizeof one));
}

void Watchdog::wait(const std::vector<int>& descriptors) {
  std::vector<int> all = descriptors;
  all.push_back(wake_);
  wait_for_any(all, kTickMilliseconds);
  std::uint64_t ignored = 0;
  static_cast<void>(!::read(wake_, &ignored, sizeof ignored));
  tick();
}

void Watchdog::end_process(ErrorCode code, const std::string& message, bool speak) const {
  if (speak) {
    leave_outcome({code, message});
    fmt::print(stderr, "quintet: {}\n", message);
    std::fflush(stderr);
  }
  // Not exit(): its handlers would wait for MPI, which waits for ranks that do not come.
  ::_exit(static_cast<int>(code));
}

// ---- Rank 0.

void Watchdog::run_hub() {
  for (std::int32_t done = 0; !stop_ || done < size_ - 1;) {
    if (abandoned_) return say_last("A");
    std::vector<int> descriptors;
    for (const LineSocket& listener : listeners_) descriptors.push_back(listener.descriptor());
    for (const Stranger& stranger : strangers_) descriptors.push_back(stranger.socket.descriptor());
    for (const Peer& peer : peers_) {
      if (peer.socket.open()) descriptors.push_back(peer.socket.descriptor());
    }
    wait(descriptors);
    if (!listeners_.empty()) admit_ranks();

    done = 0;
    for (std::int32_t r = 1; r < size_; ++r) {
      Peer& peer = peers_[index(r)];
      if (peer.socket.open() && !peer.done) hear(r, peer);
      done += peer.done ? 1 : 0;
    }
    peers_[0].pulse = take_pulse();
    look_for_stuck();
    {
      const std::lock_guard lock(mutex_);
      if (failure_) reports_.push_back(*std::exchange(failure_, std::nullopt));
    }
    if (!reports_.empty()) decide();
    if (clock_ - last_beat_ > kBeatSeconds) {
      for (Peer& peer : peers_) {
        if (peer.socket.open()) peer.socket.send("P");
      }
      last_beat_ = clock_;
    }
  }
  for (Peer& peer : peers_) {
    if (!peer.socket.open()) continue;
    peer.socket.send("Q");
    peer.socket.end_sending();
  }
}

void Watchdog::say_last(const std::string& line) {
  for (Peer& peer : peers_) {
    if (!peer.socket.open()) continue;
    peer.socket.send(line);
    peer.socket.end_sending();
  }
  // Ended at once, with lines unread, the system would take back what it has not yet delivered.
  const double until = now() + 1;
  for (bool open = true; open && now() < until;) {
    std::vector<int> descriptors;
    open = false;
    for (Peer& peer : peers_) {
      if (!peer.socket.open()) continue;
      if (!peer.socket.read()) {
        peer.socket.close();
        continue;
      }
      for (std::string ignored; peer.socket.next_line(ignored);) {
      }
      open = true;
      descriptors.push_back(peer.socket.descriptor());
    }
    if (open) wait_for_any(descriptors, kTickMilliseconds);
  }
}

// Whoever knows the secret is the rank it says; all others are let go. When all are there nobody
// listens any more.
void Watchdog::admit_ranks() {
  for (const LineSocket& listener : listeners_) {
    for (;;) {
      LineSocket made = accept_from(listener);
      if (!made.open()) break;
      if (strangers_.size() >= kMostStrangers) strangers_.erase(strangers_.begin());
      strangers_.push_back({std::move(made), clock_});
    }
  }
  std::vector<Stranger> still;
  for (Stranger& stranger : strangers_) {
    const bool open = stranger.socket.read();
    std::string line;
    if (!stranger.socket.next_line(line)) {
      if (open && clock_ - stranger.since < kHandshakeSeconds) still.push_back(std::move(stranger));
      continue;
    }
    std::istringstream words(line);
    std::string name, secret;
    std::int32_t rank = 0;
    words >> name >> secret >> rank;
    if (name != "quintet" || !same(secret, secret_) || rank < 1 || rank >= size_) continue;
    Peer& peer = peers_[index(rank)];
    peer.socket = std::move(stranger.socket);
    peer.last_heard = clock_;
    peer.socket.send("welcome");
  }
  strangers_ = std::move(still);
  if (std::all_of(peers_.begin() + 1, peers_.end(),
                  [](const Peer& peer) { return peer.socket.open(); })) {
    listeners_.clear();
    strangers_.clear();
  }
}

void Watchdog::hear(std::int32_t rank, Peer& peer) {
  const bool open = peer.socket.read();
  std::string line;
  while (peer.socket.next_line(line)) {
    peer.last_heard = clock_;
    std::istringstream words(line);
    char what = 0;
    words >> what;
    if (what == 'B') {
      words >> peer.pulse.step >> peer.pulse.waiting >> peer.pulse.age >> peer.pulse.limit >>
          peer.pulse.still;
      peer.pulse.doing = rest_of(words);
    } else if (what == 'F') {
      int code = 0;
      Report report;
      words >> code >> report.consequence >> report.step;
      report.rank = rank;
      report.code = static_cast<ErrorCode>(code);
      report.failed = true;
      report.text = rest_of(words);
      reports_.push_back(report);
    } else if (what == 'Q') {
      peer.done = true;
    }
  }
  // Ranks are in the same step, and news of it come only with a beat.
  const std::int64_t step = std::max(peer.pulse.step, step_.load(std::memory_order_relaxed));
  const auto lost = [&](const std::string& how) {
    Report report;
    report.rank = rank;
    report.step = step;
    report.text = fmt::format("rank {} {}", rank, how);
    reports_.push_back(report);
  };
  if (peer.done) return;
  // We were the silent one, and a rank has ended and said so: the others need not.
  if (!open && slept_at_ >= 0 && clock_ - slept_at_ < kHandshakeSeconds) {
    for (Peer& other : peers_) {
      if (other.socket.open())
        other.socket.send(fmt::format("L {} ", static_cast<int>(ErrorCode::kPeerLost)));
    }
    end_process(ErrorCode::kPeerLost, "", false);
  }
  if (!open) {
    lost(fmt::format("was lost {}: its process is gone", in_step(step)));
  } else if (clock_ - peer.last_heard > timeout_) {
    lost(fmt::format("has been silent for {:.0f} s {}: stopped, or its machine or network is gone",
                     timeout_, in_step(step)));
  }
}

// Ranks that wait are late because of others: those that do not are asked first. Where all wait for
// each other, what they wait for has been lost on the way; or one of them was stopped while it
// waited: waiting takes processor time, of which it then has none while others have.
void Watchdog::look_for_stuck() {
  std::int32_t busy = -1, oldest = -1, stopped = -1;
  bool all_wait = true, any_runs = false;
  double least_part = 1e9;  // of its limit, that any rank has reached
  for (std::int32_t r = 0; r < size_; ++r) {
    const Peer& peer = peers_[index(r)];
    if (peer.done) continue;
    const Pulse& pulse = peer.pulse;
    const auto older = [&](std::int32_t than) {
      return than < 0 || pulse.age > peers_[index(than)].pulse.age;
    };
    all_wait = all_wait && pulse.waiting;
    least_part = std::min(least_part, pulse.age / pulse.limit);
    if (!pulse.waiting && pulse.age > pulse.limit && older(busy)) busy = r;
    if (older(oldest)) oldest = r;
    const bool still = pulse.still > 0.5 * pulse.limit;
    any_runs = any_runs || !still;
    if (still && older(stopped)) stopped = r;
  }
  if (!any_runs) stopped = -1;
  std::int32_t stuck = busy;
  if (busy < 0 && all_wait && oldest >= 0 && least_part > 0.5 &&
      peers_[index(oldest)].pulse.age > peers_[index(oldest)].pulse.limit)
    stuck = stopped >= 0 ? stopped : oldest;
  if (stuck < 0) return;
  const Pulse& pulse = peers_[index(stuck)].pulse;
  Report report;
  report.rank = stuck;
  report.step = pulse.step;
  report.text = fmt::format("rank {} has been stuck for {:.0f} s {}, in {}{}", stuck, pulse.age,
                            in_step(pulse.step), pulse.doing,
                            busy >= 0 || size_ == 1 ? ""
                            : stopped >= 0          ? "; its main thread does not run"
                                                    : "; all ranks wait for each other");
  reports_.push_back(report);
}

// The first cause decides. Where ranks say that they failed, others may be about to say the same.
void Watchdog::decide() {
  if (first_report_ == 0) first_report_ = clock_;
  const auto lost = std::find_if(reports_.begin(), reports_.end(),
                                 [](const Report& report) { return !report.failed; });
  auto cause = std::find_if(reports_.begin(), reports_.end(),
                            [](const Report& report) { return !report.consequence; });
  std::vector<bool> has_said(index(size_), false);
  for (const Report& report : reports_) has_said[index(report.rank)] = true;
  for (std::int32_t r = 1; r < size_; ++r)
    if (peers_[index(r)].done) has_said[index(r)] = true;
  const bool all_said = std::find(has_said.begin(), has_said.end(), false) == has_said.end();
  if (lost == reports_.end() && !all_said && clock_ - first_report_ < kGraceSeconds) return;
  if (cause == reports_.end()) cause = reports_.begin();
  const bool everyone =
      all_said && std::all_of(reports_.begin(), reports_.end(), [&](const Report& report) {
        return report.text == cause->text && report.code == cause->code;
      });
  end_all(*cause, everyone);
}

void Watchdog::end_all(const Report& cause, bool everyone) {
  std::string text = cause.text;
  if (cause.failed && !everyone)
    text = fmt::format("rank {} failed {}: {}", cause.rank, in_step(cause.step), cause.text);
  const std::string message = many_lines(text);
  leave_outcome({cause.code, message});
  fmt::print(stderr, "quintet: {}\n", message);
  std::fflush(stderr);
  say_last(fmt::format("L {} {}", static_cast<int>(cause.code), text));
  end_process(cause.code, message, false);
}

// ---- Other ranks.

void Watchdog::run_member() {
  double last_heard = clock_, failed_at = -1, gone_at = -1;
  bool said_done = false;
  for (;;) {
    wait(gone_at < 0 ? std::vector<int>{hub_.descriptor()} : std::vector<int>{});
    if (gone_at < 0 && !hub_.read()) gone_at = clock_;
    std::string line;
    while (hub_.next_line(line)) {
      last_heard = clock_;
      if (line == "Q" || line == "A") return;
      if (line.rfind("L ", 0) != 0) continue;
      std::istringstream words(line);
      std::string ignored;
      int code = 0;
      words >> ignored >> code;
      end_process(static_cast<ErrorCode>(code), "", false);
    }
    std::optional<Report> failure;
    {
      const std::lock_guard lock(mutex_);
      failure = failure_;
    }
    const std::int64_t step = step_.load(std::memory_order_relaxed);
    if (gone_at >= 0 && clock_ - gone_at >= patience_) {
      end_process(ErrorCode::kPeerLost,
                  fmt::format("rank 0 was lost {}: its process is gone", in_step(step)), speaks_);
    }
    if (clock_ - last_heard > timeout_ + patience_) {
      end_process(ErrorCode::kPeerLost,
                  fmt::format("rank 0 has been silent for {:.0f} s {}: stopped, or its machine or "
                              "network is gone",
                              timeout_, in_step(step)),
                  speaks_);
    }
    if (failure && failed_at < 0) {
      failed_at = clock_;
      hub_.send(fmt::format("F {} {} {} {}", static_cast<int>(failure->code),
                            failure->consequence ? 1 : 0, failure->step, failure->text));
    }
    if (failure && clock_ - failed_at > 10 * kGraceSeconds) {
      end_process(
          failure->code,
          fmt::format("rank {} failed {}: {}", rank_, in_step(step), many_lines(failure->text)),
          true);
    }
    if (stop_ && !said_done) {
      hub_.send("Q");
      said_done = true;
    }
    if (clock_ - last_beat_ > kBeatSeconds) {
      const Pulse pulse = take_pulse();
      hub_.send(fmt::format("B {} {} {:.1f} {:.1f} {:.1f} {}", pulse.step, pulse.waiting ? 1 : 0,
                            pulse.age, pulse.limit, pulse.still, one_line(pulse.doing)));
      last_beat_ = clock_;
    }
  }
}

}  // namespace quintet
