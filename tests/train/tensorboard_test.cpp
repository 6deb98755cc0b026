// Event files, against test vectors of the checksum, bytes that TensorFlow writes, and a reader of
// their own.
#include "train/tensorboard.h"

#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "tests/support/temporary_folder.h"
#include "train/trainer.h"

namespace quintet {
namespace {

TEST(Tensorboard, Crc32cTestVectors) {
  // RFC 3720, B.4, and the check value of the algorithm.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising.push_back(static_cast<char>(i));
    falling.push_back(static_cast<char>(31 - i));
  }
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
  EXPECT_EQ(crc32c(falling), 0x113FDB5CU);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Tensorboard, KnownBytes) {
  // Every event file of TensorFlow begins so: a record of 24 bytes, wall time, "brain.Event:2".
  const std::string record = tensorboard_record(version_event(1.5));
  const unsigned char head[] = {0x18, 0, 0, 0, 0, 0, 0, 0,    0xA3, 0x7F, 0x4B, 0x22,
                                0x09, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F, 0x1A, 0x0D};
  ASSERT_EQ(record.size(), 8 + 4 + 24 + 4U);
  EXPECT_EQ(std::memcmp(record.data(), head, sizeof head), 0);
  EXPECT_EQ(record.substr(sizeof head, 13), "brain.Event:2");
  // wall_time 0, step 300 (a varint of two bytes), summary { value { tag "a", simple_value 1 } }.
  const std::string event = scalars_event(0, 300, {{"a", 1}});
  const unsigned char expected[] = {0x09, 0,    0,    0,    0,    0,    0,    0,
                                    0,    0x10, 0xAC, 0x02, 0x2A, 0x0A, 0x0A, 0x08,
                                    0x0A, 0x1,  'a',  0x15, 0,    0,    0x80, 0x3F};
  EXPECT_EQ(event, std::string(reinterpret_cast<const char*>(expected), sizeof expected));
  EXPECT_EQ(restart_event(0, 7).substr(9), std::string("\x10\x07\x3A\x02\x08\x01"));
}

// Reads what was written, checking every length and checksum.
struct ReadEvent {
  std::int64_t step = 0;
  bool restart = false;
  std::map<std::string, float> scalars;
};

std::uint64_t take_varint(std::string_view& from) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(from.at(0));
    from.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}
std::string_view take(std::string_view& from, std::size_t count) {
  const std::string_view taken = from.substr(0, count);
  if (taken.size() != count) throw std::runtime_error("cut short");
  from.remove_prefix(count);
  return taken;
}
template <class T>
T number_of(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}
// Calls visit(field, contents) for each field; numbers as their bytes.
template <class Visit>
void for_each_field(std::string_view message, const Visit& visit) {
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    if ((key & 7) == 0) {
      const std::uint64_t value = take_varint(message);
      visit(key >> 3, std::string(reinterpret_cast<const char*>(&value), 8));
    } else {
      const std::size_t size = (key & 7) == 1   ? 8
                               : (key & 7) == 5 ? 4
                                                : static_cast<std::size_t>(take_varint(message));
      visit(key >> 3, std::string(take(message, size)));
    }
  }
}

std::vector<ReadEvent> read_events(const Path& folder) {
  std::vector<Path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents."))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<ReadEvent> events;
  for (const Path& file : files) {
    const std::string text = read_file(file).value();
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view length = take(rest, 8);
      const auto unmasked = [](std::string_view bytes) {
        const std::uint32_t rotated = number_of<std::uint32_t>(bytes) - 0xA282EAD8U;
        return (rotated >> 17) | (rotated << 15);
      };
      EXPECT_EQ(unmasked(take(rest, 4)), crc32c(length));
      const std::string_view data = take(rest, number_of<std::uint64_t>(length));
      EXPECT_EQ(unmasked(take(rest, 4)), crc32c(data));
      ReadEvent event;
      for_each_field(data, [&](std::uint64_t field, const std::string& value) {
        if (field == 2) event.step = number_of<std::int64_t>(value);
        if (field == 7) event.restart = true;
        if (field != 5) return;
        for_each_field(value, [&](std::uint64_t, const std::string& one) {
          std::string tag;
          float number = 0;
          for_each_field(one, [&](std::uint64_t part, const std::string& content) {
            if (part == 1) tag = content;
            if (part == 2) number = number_of<float>(content);
          });
          event.scalars[tag] = number;
        });
      });
      events.push_back(std::move(event));
    }
  }
  return events;
}

TEST(Tensorboard, AResumedRunHasEveryStepOnce) {
  const TemporaryFolder folder;
  RunConfig config;
  config.batch.micro_batch = 4;
  config.batch.source = 24;
  config.train.threads = 1;
  config.train.steps = 3;
  config.output.folder = folder.path().string();
  config.output.log_every = 1000;
  config.output.tensorboard = true;
  config.validate.every = 2;
  config.validate.batches = 1;
  ASSERT_TRUE(train(config, *make_single_world()).ok());
  config.output.resume = true;
  config.train.steps = 5;
  ASSERT_TRUE(train(config, *make_single_world()).ok());
  // As TensorBoard does: a restart forgets the steps from its own on.
  std::map<std::int64_t, std::map<std::string, float>> steps;
  int restarts = 0;
  for (const ReadEvent& event : read_events(folder.path())) {
    if (event.restart) {
      ++restarts;
      EXPECT_EQ(event.step, 4);
      steps.erase(steps.lower_bound(event.step), steps.end());
    }
    if (event.scalars.empty()) continue;
    EXPECT_FALSE(steps.contains(event.step)) << event.step;
    steps[event.step] = event.scalars;
  }
  EXPECT_EQ(restarts, 1);
  ASSERT_EQ(steps.size(), 5U);
  const std::string metrics = read_file(folder.path() / "metrics.jsonl").value();
  std::size_t begin = 0;
  for (const auto& [step, scalars] : steps) {
    const std::size_t end = metrics.find('\n', begin);
    const Json line = parse_json(metrics.substr(begin, end - begin), "metrics").value();
    begin = end + 1;
    EXPECT_EQ(line["step"], step);
    EXPECT_EQ(scalars.at("train/loss"), line["loss"].get<float>());
    EXPECT_EQ(scalars.at("train/lr"), line["lr"].get<float>());
    EXPECT_EQ(scalars.at("train/grad_norm"), line["grad_norm"].get<float>());
    EXPECT_EQ(scalars.at("throughput/tokens_per_second"), line["tokens_per_second"].get<float>());
    EXPECT_EQ(scalars.contains("validate/loss"), line.contains("validation"));
    if (line.contains("validation")) {
      EXPECT_EQ(scalars.at("validate/loss"), line["validation"]["loss"].get<float>());
      EXPECT_TRUE(scalars.contains("validate/loss/language 0"));
    }
  }
}

}  // namespace
}  // namespace quintet
