#include "base/files.h"

#include <csignal>
#include <cstring>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Files, ReadsAndMapsWhatWasWritten) {
  const TemporaryFolder folder;
  const Path path = folder.path() / "file";
  ASSERT_TRUE(write_file(path, "hello").ok());
  EXPECT_EQ(read_file(path).value(), "hello");
  EXPECT_EQ(as_text(MappedFile::open(path).value().bytes()), "hello");
}

TEST(Files, EmptyFilesAreFine) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_file(folder.path() / "empty", "").ok());
  EXPECT_EQ(read_file(folder.path() / "empty").value(), "");
  EXPECT_TRUE(MappedFile::open(folder.path() / "empty").value().bytes().empty());
}

TEST(Files, MissingFilesAndFoldersAreNamed) {
  const TemporaryFolder folder;
  const auto missing = read_file(folder.path() / "missing");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kBadInput);
  EXPECT_NE(missing.error().message.find("missing: no such file"), std::string::npos);
  const auto directory = MappedFile::open(folder.path());
  ASSERT_FALSE(directory.ok());
  EXPECT_NE(directory.error().message.find("not a regular file"), std::string::npos);
}

TEST(Files, UncommittedWritesLeaveNothing) {
  const TemporaryFolder folder;
  const Path path = folder.path() / "file";
  ASSERT_TRUE(write_file(path, "old").ok());
  {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file.value().write("new").ok());
  }
  EXPECT_EQ(read_file(path).value(), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, AFullDiskKeepsTheOldFile) {
  const TemporaryFolder folder;
  const Path path = folder.path() / "file";
  ASSERT_TRUE(write_file(path, "old").ok());
  // A limit on the size of files makes write() fail as a full disk does.
  struct rlimit old_limit {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = old_limit;
  limit.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Status status = write_file(path, std::string(1 << 16, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_EQ(read_file(path).value(), "old");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".tmp"));
}

}  // namespace
}  // namespace quintet
