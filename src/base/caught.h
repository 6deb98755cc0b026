// From an exception to an Error, at the few places where a process or a rank's whole work is
// guarded.
#pragma once

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

#include "base/result.h"

namespace quintet {

// To be called inside a catch block.
inline Error error_of_exception() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kOutOfMemory, "the system refused memory"};
  } catch (const std::system_error& error) {
    // A thread that cannot be started, above all.
    const bool memory = error.code().value() == EAGAIN || error.code().value() == ENOMEM;
    return {memory ? ErrorCode::kOutOfMemory : ErrorCode::kIo,
            fmt::format("the system refused: {}", error.what())};
  } catch (const std::exception& error) {
    return {ErrorCode::kInternal,
            fmt::format("internal error, please report it: {}", error.what())};
  } catch (...) {
    return {ErrorCode::kInternal, "internal error, please report it: an unknown exception"};
  }
}

}  // namespace quintet
