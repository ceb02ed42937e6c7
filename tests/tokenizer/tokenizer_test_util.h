#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) fail(ErrorKind::kIo, "{} cannot be read", path.string());
  return nlohmann::json::parse(file);
}

inline std::filesystem::path test_data() {
  return MINISGL_TEST_DATA;
}

/// The folder of other people's tokenizers, which are not part of this repository; empty when the tests run without it.
inline std::filesystem::path test_corpus() {
  const char* folder = std::getenv("MINISGL_TEST_CORPUS");
  return folder == nullptr ? "" : folder;
}

/// `ids` through a Detokenizer, one at a time. Every piece must be valid UTF-8 by itself.
std::string stream_decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special);

}  // namespace minisgl
