#include "scheduler/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace minisgl {
namespace {

struct Outcome {
  std::string text;
  int stop = -1;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome out;
  for (const std::string& piece : pieces) {
    out.stop = matcher.push(piece, true, out.text);
    if (out.stop >= 0) return out;
  }
  matcher.finish(out.text);
  return out;
}

/// The first end of any stop string; of several at one end the longest.
Outcome brute_force(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    Outcome best;
    size_t length = 0;
    for (size_t s = 0; s < stops.size(); ++s) {
      const size_t n = stops[s].size();
      if (n <= end && n > length && text.compare(end - n, n, stops[s]) == 0) {
        length = n;
        best = {text.substr(0, end - n), static_cast<int>(s)};
      }
    }
    if (best.stop >= 0) return best;
  }
  return {text, -1};
}

TEST(StopMatcher, WithoutStopStringsEverythingPasses) {
  EXPECT_EQ(run({}, {"ab", "", "cd"}), (Outcome{"abcd", -1}));
}

TEST(StopMatcher, MatchesAcrossPieces) {
  EXPECT_EQ(run({"STOP"}, {"go S", "T", "OP and more"}), (Outcome{"go ", 0}));
  EXPECT_EQ(run({"\n\n"}, {"a\n", "\nb"}), (Outcome{"a", 0}));
}

TEST(StopMatcher, AtTheVeryFirstByte) {
  EXPECT_EQ(run({"a"}, {"abc"}), (Outcome{"", 0}));
}

TEST(StopMatcher, ReturnsWhatWasHeldBackInVain) {
  StopMatcher matcher({"<end>"});
  std::string out;
  EXPECT_EQ(matcher.push("x<en", true, out), -1);
  EXPECT_EQ(out, "x");
  EXPECT_EQ(matcher.push("d", true, out), -1);
  EXPECT_EQ(out, "x");
  EXPECT_EQ(matcher.push("!", true, out), -1);
  EXPECT_EQ(out, "x<end!");
  EXPECT_EQ(matcher.push("<", true, out), -1);
  matcher.finish(out);
  EXPECT_EQ(out, "x<end!<");
}

TEST(StopMatcher, OverlappingStartsAreFound) {
  EXPECT_EQ(run({"aab"}, {"aa", "ab"}), (Outcome{"a", 0}));
  EXPECT_EQ(run({"abcabd"}, {"abcab", "cabd"}), (Outcome{"abc", 0}));
}

TEST(StopMatcher, FirstToBeCompleteWinsAndOfEqualEndsTheLongest) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", 1}));
  EXPECT_EQ(run({"c", "abc", "bc"}, {"xabc"}), (Outcome{"x", 1}));
}

TEST(StopMatcher, PassedOverBeforeMinTokens) {
  StopMatcher matcher({"ab"});
  std::string out;
  EXPECT_EQ(matcher.push("xab", false, out), -1);
  EXPECT_EQ(matcher.push("ya", false, out), -1);
  EXPECT_EQ(matcher.push("b", true, out), 0) << "complete after the border, begun before it";
  EXPECT_EQ(out, "xaby");
}

TEST(StopMatcher, AgreesWithBruteForceForAnyCut) {
  std::mt19937 random(1);
  const auto text_of = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<std::string> stops;
    for (size_t i = 0, n = 1 + random() % 4; i < n; ++i) stops.push_back(text_of(1 + random() % 7));
    const std::string text = text_of(random() % 30);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random() % 5;
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    ASSERT_EQ(run(stops, pieces).text, brute_force(stops, text).text) << text;
    const Outcome a = run(stops, pieces);
    const Outcome b = brute_force(stops, text);
    ASSERT_EQ(a.stop >= 0 ? stops[static_cast<size_t>(a.stop)] : "", b.stop >= 0 ? stops[static_cast<size_t>(b.stop)] : "");
  }
}

}  // namespace
}  // namespace minisgl
