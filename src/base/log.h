// Messages for people, on standard error, so that standard output stays what a command was asked to
// print.
#pragma once

#include <cstdio>
#include <utility>

#include <fmt/format.h>

namespace quintet {

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(stderr, "{}\n", fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(stderr, "warning: {}\n", fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace quintet
