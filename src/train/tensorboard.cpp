#include "train/tensorboard.h"

#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "base/crc32c.h"

namespace quintet {
namespace {

template <class T>
void append_little_endian(std::string& to, T value) {
  static_assert(std::is_unsigned_v<T>);
  for (std::size_t i = 0; i < sizeof value; ++i)
    to.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

std::uint32_t masked(std::uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

// --- Protocol buffers, as much as an Event needs

void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>((value & 0x7F) | 0x80));
  to.push_back(static_cast<char>(value));
}

enum Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void append_key(std::string& to, std::uint64_t field, Wire wire) {
  append_varint(to, field << 3 | wire);
}
void append_bytes(std::string& to, std::uint64_t field, std::string_view bytes) {
  append_key(to, field, kBytes);
  append_varint(to, bytes.size());
  to.append(bytes);
}
void append_integer(std::string& to, std::uint64_t field, std::int64_t value) {
  append_key(to, field, kVarint);
  append_varint(to, static_cast<std::uint64_t>(value));
}
void append_double(std::string& to, std::uint64_t field, double value) {
  append_key(to, field, kFixed64);
  append_little_endian(to, std::bit_cast<std::uint64_t>(value));
}
void append_float(std::string& to, std::uint64_t field, float value) {
  append_key(to, field, kFixed32);
  append_little_endian(to, std::bit_cast<std::uint32_t>(value));
}

// Field numbers of tensorflow.Event, Summary, Summary.Value and SessionLog.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };
enum SessionLogField { kStatus = 1 };
constexpr std::int64_t kSessionStart = 1;

std::string event_at(double time, std::int64_t step) {
  std::string event;
  append_double(event, kWallTime, time);
  if (step != 0) append_integer(event, kStep, step);
  return event;
}

}  // namespace

std::string tensorboard_record(std::string_view data) {
  std::string length, record;
  append_little_endian(length, static_cast<std::uint64_t>(data.size()));
  record = length;
  append_little_endian(record, masked(crc32c(length)));
  record.append(data);
  append_little_endian(record, masked(crc32c(data)));
  return record;
}

std::string version_event(double time) {
  std::string event = event_at(time, 0);
  append_bytes(event, kFileVersion, "brain.Event:2");
  return event;
}

std::string restart_event(double time, std::int64_t step) {
  std::string event = event_at(time, step), log;
  append_integer(log, kStatus, kSessionStart);
  append_bytes(event, kSessionLog, log);
  return event;
}

std::string scalars_event(double time, std::int64_t step, const std::vector<Scalar>& scalars) {
  std::string event = event_at(time, step), summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    append_bytes(value, kTag, scalar.tag);
    append_float(value, kSimpleValue, static_cast<float>(scalar.value));
    append_bytes(summary, kValue, value);
  }
  append_bytes(event, kSummary, summary);
  return event;
}

std::vector<Scalar> scalars_of(const StepMetrics& m, const ValidationResult* validation) {
  std::vector<Scalar> scalars = {{"train/loss", m.loss},
                                 {"train/lr", m.learning_rate},
                                 {"train/grad_norm", m.grad_norm},
                                 {"throughput/tokens_per_second", m.tokens / m.seconds},
                                 {"throughput/tflops", m.flops / m.seconds * 1e-12},
                                 {"throughput/step_seconds", m.seconds}};
  if (m.z_loss != 0) scalars.push_back({"train/z_loss", m.z_loss});
  if (m.noise_scale) scalars.push_back({"train/gradient_noise_scale", *m.noise_scale});
  if (validation == nullptr) return scalars;
  const auto add = [&](const std::string& suffix, const LossSum& sum) {
    scalars.push_back({"validate/loss" + suffix, sum.mean()});
    if (const auto bits = sum.bits_per_byte())
      scalars.push_back({"validate/bits_per_byte" + suffix, *bits});
  };
  add("", validation->total);
  for (const auto& language : validation->languages) add("/" + language.name, language.sum);
  return scalars;
}

Result<TensorboardFile> TensorboardFile::open(const Path& folder, std::int64_t resumed_step) {
  QT_TRY(make_directories(folder));
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  TensorboardFile file;
  // Readers take the files of a folder in the order of their names.
  file.path_ = folder / fmt::format("events.out.tfevents.{:010}.{:06}.{}", micros / 1000000,
                                    micros % 1000000, host);
  file.file_.reset(std::fopen(file.path_.c_str(), "wbx"));
  if (!file.file_)
    return io_error("{}: cannot open: {}", file.path_.string(), std::strerror(errno));
  const double time = static_cast<double>(micros) * 1e-6;
  QT_TRY(file.write(version_event(time)));
  if (resumed_step > 0) QT_TRY(file.write(restart_event(time, resumed_step + 1)));
  return file;
}

Status TensorboardFile::append(const StepMetrics& metrics, const ValidationResult* validation) {
  return write(scalars_event(metrics.time, metrics.step, scalars_of(metrics, validation)));
}

Status TensorboardFile::write(std::string_view event) {
  const std::string record = tensorboard_record(event);
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size() ||
      std::fflush(file_.get()) != 0) {
    return io_error("{}: write failed: {}", path_.string(), std::strerror(errno));
  }
  return {};
}

}  // namespace quintet
