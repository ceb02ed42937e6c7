#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace minisgl {

/// What went wrong, in the terms a caller can act on. The HTTP layer maps each kind to a status code, the CLI to an exit status.
enum class ErrorKind {
  kUsage,                  ///< wrong command line or configuration: exit status 2
  kInvalidRequest,         ///< a request field is malformed or out of range (HTTP 400)
  kContextLengthExceeded,  ///< prompt, or prompt plus output, longer than the limit (HTTP 400)
  kNotFound,               ///< unknown model, file or route (HTTP 404)
  kUnavailable,            ///< loading, draining, or the engine has failed (HTTP 503)
  kTimeout,                ///< a deadline passed (HTTP 408)
  kNotSupported,           ///< valid, but this engine does not do it; the message names the field
  kBadModel,               ///< a model file is malformed, incomplete or inconsistent
  kIo,                     ///< the operating system refused an input or output operation
  kOutOfMemory,            ///< what was asked for does not fit; the message has the numbers
  kInternal,               ///< our own bug
};

/// The one exception type of the project. `what()` says what was wrong, what was expected and what to change.
/// Thrown by loaders, parsers and validation; caught at one boundary (a CLI command, a connection, a request). The scheduler and the
/// executor never throw for user input.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::string param = "")
      : std::runtime_error(message), kind_(kind), param_(std::move(param)) {}

  ErrorKind kind() const { return kind_; }
  /// The request field, flag or file key at fault; empty if there is none.
  const std::string& param() const { return param_; }

 private:
  ErrorKind kind_;
  std::string param_;
};

/// The stable lower-case name of a kind, as printed in JSON ("invalid_request_error", "context_length_exceeded", ...).
const char* error_kind_name(ErrorKind kind);

}  // namespace minisgl
