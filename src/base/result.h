// What can fail in use returns a Result<T>: a value, or an Error that says what was wrong, where,
// what was expected and what to do. Exceptions are for our own mistakes only (check.h).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/check.h"

namespace quintet {

// The process's exit status for each kind of failure; part of the command line's contract
// (README, "Exit codes"), so values are frozen.
enum class ErrorCode : int {
  kInternal = 1,      // a bug of ours
  kUsage = 2,         // a flag, a config key or value, a layout that cannot be
  kBadInput = 3,      // a file that is missing, truncated, hostile or does not fit the model
  kMismatch = 4,      // `verify` ran and the values are outside their tolerance
  kNonFinite = 5,     // the loss or a gradient stopped being a number
  kOutOfMemory = 6,   // the plan does not fit the device
  kIo = 7,            // the system refused: disk full, permission, I/O error
  kPeerLost = 8,      // another rank died or went silent
  kInterrupted = 130  // SIGINT or SIGTERM, after saving what was asked for
};

// Whether every rank of a run comes to such an error at the same moment, so that none need be told.
constexpr bool all_ranks_find(ErrorCode code) {
  return code == ErrorCode::kUsage || code == ErrorCode::kMismatch ||
         code == ErrorCode::kNonFinite || code == ErrorCode::kInterrupted;
}

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <class... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Error usage_error(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kUsage, format, std::forward<Args>(args)...);
}
template <class... Args>
Error bad_input(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kBadInput, format, std::forward<Args>(args)...);
}
template <class... Args>
Error io_error(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kIo, format, std::forward<Args>(args)...);
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return state_.index() == 0; }
  const Error& error() const {
    QT_CHECK(!ok(), "no error in a Result that holds a value");
    return std::get<1>(state_);
  }
  T& value() & {
    QT_CHECK(ok(), "value of a failed Result: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  const T& value() const& { return const_cast<Result*>(this)->value(); }
  // By value: a reference into a temporary would dangle in `for (x : f().value())`.
  T value() && { return std::move(value()); }

 private:
  std::variant<T, Error> state_;
};

// A Result without a value.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return !error_.has_value(); }
  const Error& error() const {
    QT_CHECK(!ok(), "no error in a Status that is ok");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace quintet

#define QT_CONCAT_(a, b) a##b
#define QT_CONCAT(a, b) QT_CONCAT_(a, b)

// QT_TRY(status_expression): returns its error from the enclosing function.
#define QT_TRY(expression)                                  \
  do {                                                      \
    if (auto&& qt_status = (expression); !qt_status.ok()) { \
      return qt_status.error();                             \
    }                                                       \
  } while (false)

// QT_ASSIGN(auto x, result_expression): x becomes the value, or the error is returned.
#define QT_ASSIGN(declaration, expression) \
  QT_ASSIGN_(QT_CONCAT(qt_result_, __LINE__), declaration, expression)
#define QT_ASSIGN_(result, declaration, expression)   \
  auto result = (expression);                         \
  if (!result.ok()) return std::move(result).error(); \
  declaration = std::move(result).value()
