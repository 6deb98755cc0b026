// Checks for our own mistakes. What a user can cause is a Result (result.h), never one of these.
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/format.h>

namespace quintet {

// Thrown when the program contradicts itself: a bug in Quintet, reported as such by main().
class LogicError : public std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] inline void check_failed(const char* file, int line, const char* condition,
                                      const std::string& message) {
  throw LogicError(fmt::format("{}:{}: check `{}` failed: {}", file, line, condition, message));
}

}  // namespace quintet

// QT_CHECK(i < n, "slot {} of {}", i, n): always on; the message is formatted only on failure.
#define QT_CHECK(condition, ...)                                                           \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      ::quintet::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                      \
  } while (false)
