// Where an executor keeps a program's tensors: the arena on the device, and host memory beside it.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace quintet {

struct Memory {
  std::byte* arena = nullptr;
  std::byte* host = nullptr;

  std::byte* at(const Program& program, TensorId id) const {
    const bool on_host = program.tensor(id).storage == Storage::kHost;
    return (on_host ? host : arena) + program.address_of(id);
  }
};

}  // namespace quintet
