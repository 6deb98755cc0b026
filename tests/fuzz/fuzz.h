// A fuzz target takes any bytes and must neither crash nor accept what is not sound. Each target
// file defines LLVMFuzzerTestOneInput, so that libFuzzer can drive it (CONTRIBUTING.md), and
// seeds(), from which our own driver (driver.cpp) mutates: deterministic, bounded, part of every
// test run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// Valid inputs to start from.
std::vector<std::string> seeds();
