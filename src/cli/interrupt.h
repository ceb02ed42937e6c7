#pragma once

#include <functional>

#include "minisgl/llm.h"

namespace minisgl::cli {

/// The exit status of a command that a signal ended.
inline constexpr int kExitInterrupted = 130;

/// While alive, Ctrl-C (SIGINT) and SIGTERM abort the requests of `llm` instead of ending the program. One at a time per process.
class InterruptGuard {
 public:
  explicit InterruptGuard(LLM& llm);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// A signal arrived since construction or reset().
  bool interrupted() const;
  /// SIGTERM arrived since construction: the command must end, whatever reset() made of the rest.
  bool terminated() const;
  void reset();
};

}  // namespace minisgl::cli
