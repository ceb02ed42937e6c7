#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "scheduler/trace_runner.h"

namespace minisgl::test {
namespace {

const std::filesystem::path kTraces = std::filesystem::path(MINISGL_SOURCE_DIR) / "tests/scheduler/traces";

std::vector<std::string> trace_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kTraces)) {
    if (entry.path().extension() == ".trace") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class SchedulerTraceTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SchedulerTraceTest, GoesAsItSays) {
  std::ifstream file(kTraces / (GetParam() + ".trace"));
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_FALSE(text.str().empty());
  EXPECT_EQ(TraceRunner().run(text.str()), "") << GetParam() << ".trace";
}

INSTANTIATE_TEST_SUITE_P(Traces, SchedulerTraceTest, ::testing::ValuesIn(trace_names()), [](const auto& info) { return info.param; });

TEST(TraceRunnerTest, SaysWhichLineWentWrong) {
  EXPECT_EQ(TraceRunner().run("config rows=2\narrive a prompt=1..5 max=3\nfinish\nexpect tokens a 4\n"),
            "line 4: tokens is 3, expected was 4");
  EXPECT_EQ(TraceRunner().run("config rows=2\n# nothing\narive a prompt=1 max=3\n"), "line 3: no such command: arive");
  EXPECT_EQ(TraceRunner().run("step\n"), "line 1: a trace begins with config");
}

}  // namespace
}  // namespace minisgl::test
