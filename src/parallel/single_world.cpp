// A rank alone: every collective is a copy.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "parallel/communicator.h"

namespace quintet {
namespace {

class Copy final : public Transfer {
 public:
  Copy(const void* from, void* to, std::int64_t bytes) : from_(from), to_(to), bytes_(bytes) {}
  void start() override {
    if (from_ != to_ && bytes_ > 0) std::memmove(to_, from_, static_cast<std::size_t>(bytes_));
  }
  bool test() override { return true; }

 private:
  const void* from_;
  void* to_;
  std::int64_t bytes_;
};

class SingleCommunicator final : public Communicator {
 public:
  std::int32_t size() const override { return 1; }
  std::int32_t rank() const override { return 0; }
  std::unique_ptr<Transfer> all_reduce(const void* in, void* out, std::int64_t count, DType dtype,
                                       Reduction, void*) override {
    return std::make_unique<Copy>(in, out, count * size_of(dtype));
  }
  std::unique_ptr<Transfer> all_gather(const void* part, void* whole, std::int64_t bytes) override {
    return std::make_unique<Copy>(part, whole, bytes);
  }
  std::unique_ptr<Transfer> reduce_scatter(const void* whole, void* part, std::int64_t count,
                                           DType dtype, void*) override {
    return std::make_unique<Copy>(whole, part, count * size_of(dtype));
  }
  std::unique_ptr<Transfer> broadcast(void* data, std::int64_t, std::int32_t) override {
    return std::make_unique<Copy>(data, data, 0);
  }
  void all_reduce_now(float*, std::int64_t, Reduction, void*) override {}
  std::unique_ptr<Transfer> send(const void*, std::int64_t, std::int32_t, std::int32_t) override {
    QT_CHECK(false, "a rank alone has nobody to send to");
  }
  std::unique_ptr<Transfer> recv(void*, std::int64_t, std::int32_t, std::int32_t) override {
    QT_CHECK(false, "a rank alone has nobody to receive from");
  }
};

class SingleWorld final : public World {
 public:
  std::int32_t size() const override { return 1; }
  std::int32_t rank() const override { return 0; }
  std::unique_ptr<Communicator> group(const std::vector<std::int32_t>&, std::int32_t) override {
    return std::make_unique<SingleCommunicator>();
  }
  std::int64_t minimum(std::int64_t value) override { return value; }
  std::vector<std::string> gather(const std::string& text) override { return {text}; }
  std::string broadcast(const std::string& text) override { return text; }
  void barrier() override {}
};

}  // namespace

std::unique_ptr<World> make_single_world() {
  return std::make_unique<SingleWorld>();
}

}  // namespace quintet
