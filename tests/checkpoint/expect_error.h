#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace minisgl::test {

/// Expects `action` to throw an Error of `kind` with a message of one line, short enough to read, that contains each of `parts`.
template <typename Action>
void expect_error(ErrorKind kind, const std::vector<std::string>& parts, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), kind) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LE(message.size(), 600u) << message;
    for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
    return;
  }
  ADD_FAILURE() << "no error; expected one with \"" << (parts.empty() ? "" : parts.front()) << "\"";
}

}  // namespace minisgl::test
