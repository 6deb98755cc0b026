// The description of each runtime (program/backend.h), for whoever plans, counts or simulates
// without running: no device and none of its libraries is needed.
#pragma once

#include <memory>

#include "program/backend.h"

namespace quintet {

std::unique_ptr<const Backend> make_backend(const Target& target);

// One for each runtime; make_backend chooses.
std::unique_ptr<const Backend> make_cpu_backend(const Target& target);
std::unique_ptr<const Backend> make_cuda_backend(const Target& target);

}  // namespace quintet
