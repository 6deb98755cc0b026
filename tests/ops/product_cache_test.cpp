// The choice of a product's algorithm, kept in a file that several ranks write at once.
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/cuda/check.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/scratch.h"
#include "tests/support/temporary_folder.h"

namespace quintet::cuda {
namespace {

std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ProductCache, TheFirstToDecideIsRightForAll) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "cache" / "products.txt").string();
  constexpr std::int64_t kSize = 1024;
  const Product product{.m = kSize,
                        .n = kSize,
                        .k = kSize,
                        .a = DType::kBF16,
                        .b = DType::kBF16,
                        .out = DType::kBF16,
                        .lda = kSize,
                        .ldb = kSize,
                        .ldc = kSize};
  std::byte* memory = nullptr;
  constexpr std::size_t kBytes = kSize * kSize * 2;
  QT_CUDA(cudaMalloc(reinterpret_cast<void**>(&memory),
                     3 * kBytes + static_cast<std::size_t>(matmul::kDeviceWorkspace)));
  const Operands operands{.a = memory,
                          .b = memory + kBytes,
                          .c = memory + 2 * kBytes,
                          .workspace = memory + 3 * kBytes};
  const auto algorithm = [](const std::string& choices) {
    return choices.substr(0, choices.rfind(' '));  // all but the seconds
  };
  {
    // Both find nothing when they begin, as ranks of one machine do.
    Gemm one("this_gpu", file), two("this_gpu", file);
    one.set_tuning(true);
    two.set_tuning(true);
    one.run(product, operands, nullptr);
    two.run(product, operands, nullptr);
    QT_CUDA(cudaDeviceSynchronize());
    ASSERT_EQ(lines_of(file).size(), 1u);
    EXPECT_EQ(algorithm(one.choices()), algorithm(lines_of(file)[0]));
    EXPECT_EQ(algorithm(two.choices()), algorithm(one.choices()));
  }
  // A later one takes it from there; another GPU does not.
  Gemm later("this_gpu", file), other("another_gpu", file);
  later.run(product, operands, nullptr);
  EXPECT_EQ(algorithm(later.choices()), algorithm(lines_of(file)[0]));
  other.set_tuning(true);
  other.run(product, operands, nullptr);
  EXPECT_EQ(lines_of(file).size(), 2u);
  // What ranks agree on replaces one's own.
  Gemm stranger("this_gpu", "");
  stranger.adopt(lines_of(file)[0] + "\n");
  stranger.run(product, operands, nullptr);
  EXPECT_EQ(algorithm(stranger.choices()), algorithm(lines_of(file)[0]));
  // Half a line, or none of ours, is nothing.
  std::ofstream(file, std::ios::app) << "this_gpu 1 nn:1x1\nrubbish\n";
  Gemm brave("this_gpu", file);
  brave.run(product, operands, nullptr);
  EXPECT_EQ(algorithm(brave.choices()), algorithm(lines_of(file)[0]));
  QT_CUDA(cudaDeviceSynchronize());
  QT_CUDA(cudaFree(memory));
}

}  // namespace
}  // namespace quintet::cuda
