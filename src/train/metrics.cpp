#include "train/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

namespace quintet {
namespace {

// The weight of the newest validation in the smoothed one: some five of them count.
constexpr double kSmoothing = 0.3;

std::size_t terminal_width() {
  struct winsize size = {};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 80;
}

}  // namespace

Result<MetricsFile> MetricsFile::open(const Path& folder, std::int64_t resumed_step) {
  QT_TRY(make_directories(folder));
  MetricsFile metrics;
  metrics.path_ = folder / "metrics.jsonl";
  std::string kept;
  if (resumed_step > 0) {
    const auto text = read_file(metrics.path_);
    const std::string& old = text.ok() ? text.value() : kept;
    for (std::size_t begin = 0; begin < old.size();) {
      const std::size_t end = old.find('\n', begin);
      if (end == std::string::npos) break;  // a line cut off by a crash
      const auto line = parse_json(old.substr(begin, end - begin), metrics.path_.string());
      if (line.ok() && integer_in(line.value(), "step", INT64_MAX) <= resumed_step) {
        kept += old.substr(begin, end - begin + 1);
        metrics.remember(line.value());
      }
      begin = end + 1;
    }
  }
  QT_TRY(write_file(metrics.path_, kept));
  metrics.file_.reset(std::fopen(metrics.path_.c_str(), "a"));
  if (!metrics.file_) {
    return io_error("{}: cannot open: {}", metrics.path_.string(), std::strerror(errno));
  }
  return metrics;
}

void MetricsFile::remember(const Json& line) {
  if (!line.contains("spike"))
    spikes_.note(number_in(line, "loss", NAN), number_in(line, "grad_norm", NAN));
  const auto validation = line.find("validation");
  if (validation == line.end()) return;
  if (const double before = number_in(*validation, "smoothed", NAN); !std::isnan(before))
    smoothed_ = before;
}

Status MetricsFile::append(const StepMetrics& m, const ValidationResult* validation) {
  Json line = {{"step", m.step},
               {"loss", m.loss},
               {"z_loss", m.z_loss},
               {"grad_norm", m.grad_norm},
               {"lr", m.learning_rate},
               {"seconds", m.seconds},
               {"data_seconds", m.data_seconds},
               {"tokens_per_second", m.tokens / m.seconds},
               {"tflops", m.flops / m.seconds * 1e-12},
               {"source_fill", m.source_fill},
               {"target_fill", m.target_fill},
               {"time", m.time},
               {"samples", m.samples_so_far},
               {"tokens", m.tokens_so_far}};
  if (validation != nullptr) {
    line["validation"] = validation->to_json();
    const double before = smoothed_.value_or(validation->loss());
    line["validation"]["smoothed"] = before + kSmoothing * (validation->loss() - before);
  }
  if (m.noise_scale) line["gradient_noise_scale"] = *m.noise_scale;
  if (const std::string spike = spikes_.spike(m.loss, m.grad_norm); !spike.empty())
    line["spike"] = spike;
  remember(line);
  if (m.skipped) line["skipped"] = true;
  if (m.rewound_from > 0) line["rewound_from"] = m.rewound_from;
  const std::string text = to_text(line) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    return io_error("{}: write failed: {}", path_.string(), std::strerror(errno));
  }
  return {};
}

Progress::Progress(std::int64_t total_steps, std::int64_t log_every, double memory_bytes)
    : total_steps_(total_steps),
      log_every_(log_every),
      memory_bytes_(memory_bytes),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::step(const StepMetrics& m) {
  const double kept = terminal_ ? 1 - 1 / static_cast<double>(log_every_) : 1;
  for (const auto& [sum, value] : {std::pair{&loss_, m.loss},
                                   {&seconds_, m.seconds},
                                   {&data_seconds_, m.data_seconds},
                                   {&tokens_, m.tokens},
                                   {&flops_, m.flops},
                                   {&count_, 1.0}})
    *sum = *sum * kept + value;
  since_drawn_ += m.seconds;
  const bool last = m.step == total_steps_;
  const std::string left =
      human_duration(static_cast<double>(total_steps_ - m.step) * seconds_ / count_);
  if (terminal_) {
    if (since_drawn_ < 0.1 && !last) return;
    since_drawn_ = 0;
    std::string line = fmt::format("step {}/{}  loss {:.4f}  {:.0f} tok/s  left {}", m.step,
                                   total_steps_, loss_ / count_, tokens_ / seconds_, left);
    line.resize(std::min(line.size(), terminal_width() - 1));
    fmt::print(stderr, "\r\033[K{}", line);
    std::fflush(stderr);
    line_open_ = true;
    return;
  }
  if (m.step % log_every_ != 0 && !last) return;
  const double rate = flops_ / seconds_;
  fmt::print(stderr, "step {}/{}  loss {:.4f}  {:.0f} tok/s  {}  {}  data wait {:.1f} %  left {}\n",
             m.step, total_steps_, loss_ / count_, tokens_ / seconds_,
             rate < 1e12 ? fmt::format("{:.1f} GFLOP/s", rate * 1e-9)
                         : fmt::format("{:.1f} TFLOP/s", rate * 1e-12),
             human_bytes(memory_bytes_), 100 * data_seconds_ / seconds_, left);
  std::fflush(stderr);
  loss_ = seconds_ = data_seconds_ = tokens_ = flops_ = count_ = 0;
}

void Progress::validated(std::int64_t step, const ValidationResult& result, bool best) {
  finish();
  const auto bits = result.total.bits_per_byte();
  log_info("step {}: validation loss {:.4f}{}{}, {} sequences in {:.1f} s", step, result.loss(),
           best ? " (the best so far)" : "",
           bits ? fmt::format(", {:.4f} bits per byte", *bits) : "", result.total.sequences,
           result.seconds);
}

void Progress::finish() {
  if (line_open_) fmt::print(stderr, "\n");
  line_open_ = false;
}

}  // namespace quintet
