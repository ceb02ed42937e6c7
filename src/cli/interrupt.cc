#include "cli/interrupt.h"

#include <signal.h>

#include <atomic>

#include "base/error.h"

namespace minisgl::cli {

namespace {

// Written by the guard, read by the signal handler.
std::atomic<LLM*> guarded_llm = nullptr;
std::atomic<bool> signal_arrived = false;
std::atomic<bool> terminate_arrived = false;

extern "C" void on_signal(int signal) {
  if (signal == SIGTERM) terminate_arrived.store(true);
  signal_arrived.store(true);
  if (LLM* llm = guarded_llm.load()) llm->abort();
}

void install(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);  // no SA_RESTART: a read from the terminal returns, so that chat can start a new line
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard(LLM& llm) {
  MINISGL_CHECK(guarded_llm.load() == nullptr, "a second InterruptGuard");
  guarded_llm.store(&llm);
  signal_arrived.store(false);
  terminate_arrived.store(false);
  install(on_signal);
}

InterruptGuard::~InterruptGuard() {
  install(SIG_DFL);
  guarded_llm.store(nullptr);
}

bool InterruptGuard::interrupted() const {
  return signal_arrived.load();
}
bool InterruptGuard::terminated() const {
  return terminate_arrived.load();
}

void InterruptGuard::reset() {
  signal_arrived.store(false);
}

}  // namespace minisgl::cli
