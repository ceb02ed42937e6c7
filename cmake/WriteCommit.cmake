# Writes OUTPUT, a header with the commit of SOURCE_DIR, if it changed. Run at every build; costs milliseconds.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET)
if(NOT commit)
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once

namespace minisgl::cli {

/// The commit this program was built from.
inline constexpr char kCommit[] = \"${commit}\";

}  // namespace minisgl::cli
")
