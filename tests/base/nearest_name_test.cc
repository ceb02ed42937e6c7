#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

using Names = std::vector<std::string>;

TEST(NearestName, IsTheOneWithTheFewestEdits) {
  EXPECT_EQ(nearest_name("max-token", {"model", "max-model-len", "max-tokens"}), "max-tokens");
  EXPECT_EQ(nearest_name("temprature", {"top-p", "temperature"}), "temperature");
  EXPECT_EQ(nearest_name("seed", {"speed", "seed"}), "seed");
}

TEST(NearestName, IsEmptyIfNoneIsClose) {
  EXPECT_EQ(nearest_name("seed", {"temperature", "model"}), "");
  EXPECT_EQ(nearest_name("seed", {}), "");
  EXPECT_EQ(nearest_name("", {"model"}), "");
}

TEST(NearestNames, AreClosestFirstInTheirOrderAndLimited) {
  EXPECT_EQ(nearest_names("abcdef", {"abcxyz", "abcdxy", "abcdeg", "abcdeh", "zzzzzz"}, 10),
            (Names{"abcdeg", "abcdeh", "abcdxy", "abcxyz"}));
  EXPECT_EQ(nearest_names("abcdef", {"abcxyz", "abcdxy", "abcdeg"}, 2), (Names{"abcdeg", "abcdxy"}));
}

}  // namespace
}  // namespace minisgl
