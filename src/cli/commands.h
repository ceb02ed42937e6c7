#pragma once

#include "cli/flags.h"

namespace minisgl::cli {

// One function per subcommand, each in its own file. Results go to stdout, everything else to stderr. Returns the exit status: 0 success,
// 1 failure, 130 interrupted; throws minisgl::Error.
int run_generate(const Flags& flags);
int run_chat(const Flags& flags);
int run_tokenize(const Flags& flags);
int run_detokenize(const Flags& flags);
int run_info(const Flags& flags);
int run_doctor(const Flags& flags);
int run_bench_latency(const Flags& flags);
int run_check(const Flags& flags);

/// The text of --licenses.
const char* licenses_text();

}  // namespace minisgl::cli
