#include "tokenizer/tokenizer_test_util.h"

#include <gtest/gtest.h>

#include "tokenizer/utf8.h"

namespace minisgl {

std::string stream_decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  Detokenizer stream(tokenizer, skip_special);
  std::string text;
  auto take = [&](const std::string& piece) {
    EXPECT_EQ(find_invalid_utf8(piece), std::string::npos);
    text += piece;
  };
  for (const int32_t id : ids) take(stream.push(id));
  take(stream.finish());
  return text;
}

}  // namespace minisgl
