#include "base/error.h"

namespace minisgl {

const char* error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "usage_error";
    case ErrorKind::kInvalidRequest:
      return "invalid_request_error";
    case ErrorKind::kContextLengthExceeded:
      return "context_length_exceeded";
    case ErrorKind::kNotFound:
      return "not_found_error";
    case ErrorKind::kUnavailable:
      return "unavailable_error";
    case ErrorKind::kTimeout:
      return "timeout_error";
    case ErrorKind::kNotSupported:
      return "not_supported_error";
    case ErrorKind::kBadModel:
      return "bad_model_error";
    case ErrorKind::kIo:
      return "io_error";
    case ErrorKind::kOutOfMemory:
      return "out_of_memory_error";
    case ErrorKind::kInternal:
      return "server_error";
  }
  return "server_error";
}

namespace detail {

void check_failed(const char* file, int line, const char* expression, const std::string& message) {
  throw Error(ErrorKind::kInternal,
              fmt::format("internal error at {}:{}: {} does not hold{}{}", file, line, expression, message.empty() ? "" : ": ", message));
}

}  // namespace detail

}  // namespace minisgl
