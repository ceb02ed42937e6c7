#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "minisgl/error.h"

namespace minisgl {

/// Throws Error(kind, formatted message).
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(kind, formatted message) that names the field at fault.
template <typename... Args>
[[noreturn]] void fail_param(ErrorKind kind, std::string param, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...), std::move(param));
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* expression, const std::string& message);
}  // namespace detail

/// For our own bugs only, never for user input: throws Error(kInternal) with the place and the expression.
/// MINISGL_CHECK(a == b, "a is {}, b is {}", a, b);
#define MINISGL_CHECK(condition, ...)                                                                 \
  do {                                                                                                \
    if (!(condition)) [[unlikely]] {                                                                  \
      ::minisgl::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                                 \
  } while (false)

/// A check of the ownership contract that costs more than a comparison: compiled only into debug and sanitizer builds.
#ifdef NDEBUG
#define MINISGL_DCHECK(...) ((void)0)
#else
#define MINISGL_DCHECK(...) MINISGL_CHECK(__VA_ARGS__)
#endif

}  // namespace minisgl
