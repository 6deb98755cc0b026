#include "base/mapped_fault.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

// Damage is remembered for good.
TEST(MappedFault, AFileThatShrinksWhileItIsReadIsNamed) {
  const TemporaryFolder folder;
  const Path path = folder.path() / "shard";
  std::ofstream(path.string()) << std::string(100000, 'x');
  const auto map = MappedFile::open(path);
  ASSERT_TRUE(map.ok());
  ASSERT_TRUE(mapped_files_are_whole().ok());
  std::filesystem::resize_file(path, 10);
  EXPECT_EQ(static_cast<char>(map.value().bytes()[90000]), '\0');
  const Status whole = mapped_files_are_whole();
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.error().code, ErrorCode::kBadInput);
  EXPECT_NE(whole.error().message.find(path.string() + ": could not be read near byte 90000"),
            std::string::npos)
      << whole.error().message;
}

}  // namespace
}  // namespace quintet
