// The one way to cuBLASLt: row-major matrix products, each shape with the algorithm that was
// fastest when measured on this very device. Measured once: the choice is kept in a file of the
// user's cache folder, where the first one for a shape holds, whoever else measures it. Only
// algorithms that give the same bits every time are considered.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "base/dtype.h"

namespace quintet::cuda {

// C = alpha op(A) op(B) + addend; C is m x n, the inner size k; ld* are row strides in memory.
// Operands of eight bits are not transposed, transposed, and have units.
struct Product {
  bool ta = false, tb = false;
  std::int64_t m = 0, n = 0, k = 0;
  DType a = DType::kF32, b = DType::kF32, out = DType::kF32;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
};

struct Operands {
  const void *a = nullptr, *b = nullptr;
  const void* addend = nullptr;  // null: none; may be c itself; its rows have C's stride
  void* c = nullptr;
  float alpha = 1;
  void* workspace = nullptr;                         // matmul::kDeviceWorkspace bytes
  const float *unit_a = nullptr, *unit_b = nullptr;  // on the device
};

class Gemm {
 public:
  // `device` names the GPU in the cache file; an empty `cache_file` keeps nothing.
  Gemm(std::string device, std::string cache_file);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  void run(const Product& product, const Operands& operands, cudaStream_t stream);

  // While on, a shape seen for the first time is measured on its operands, which are filled with
  // random numbers first: for use before there is anything in them to lose. While off, it gets the
  // library's first choice.
  void set_tuning(bool on) { tuning_ = on; }

  // The choices made so far, and those of another: ranks of a run agree on one for each shape. An
  // adopted choice replaces one's own.
  const std::string& choices() const { return measured_; }
  void adopt(const std::string& choices);

  // Seconds of one product at its best algorithm, on random operands given as scratch memory.
  double time(const Product& product, const Operands& operands, cudaStream_t stream);

 private:
  struct Plan;
  Plan& plan_for(const Product& product, const Operands& operands, cudaStream_t stream);
  void choose(Plan& plan, const std::string& key, const Product& product, const Operands& operands,
              cudaStream_t stream);
  void launch(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Operands& operands,
              cudaStream_t stream);
  std::string line_of(const std::string& key, const cublasLtMatmulAlgo_t& algorithm,
                      double seconds) const;
  std::map<std::string, cublasLtMatmulAlgo_t> read_choices(std::istream& lines) const;
  void share(const std::string& key, Plan& plan, double seconds);

  const std::string device_, cache_file_;
  cublasLtHandle_t handle_ = nullptr;
  bool tuning_ = false;
  std::map<std::string, std::unique_ptr<Plan>> plans_;
  std::map<std::string, cublasLtMatmulAlgo_t> cached_;
  std::string measured_;
};

// Fills memory with random numbers in (-1, 1).
void fill_random(void* data, std::int64_t count, DType dtype, std::uint64_t seed,
                 cudaStream_t stream);
// Any shape and alignment, slowly: for the few the library has no algorithm for.
void plain_product(const Product& product, const Operands& operands, cudaStream_t stream);

// $XDG_CACHE_HOME/quintet/products.txt, or under ~/.cache; empty where there is neither.
std::string product_cache_file();

}  // namespace quintet::cuda
