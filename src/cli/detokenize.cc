#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/json_lines.h"
#include "cli/output.h"
#include "llm/tokenizer_bundle.h"

namespace minisgl::cli {

namespace {

using Json = nlohmann::ordered_json;

void print_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  for (const int32_t id : ids) {
    if (!tokenizer.id_to_token(id).has_value()) {
      fail_param(ErrorKind::kInvalidRequest, "token_ids", "token id {} is not in the vocabulary of {} tokens", id, tokenizer.vocab_size());
    }
  }
  const Json line = {{"token_ids", ids}, {"text", tokenizer.decode(ids, skip_special)}};
  write_stdout(line.dump() + "\n");
}

}  // namespace

int run_detokenize(const Flags& flags) {
  const TokenizerBundle bundle = load_tokenizer_bundle(engine_config(flags));
  const Tokenizer& tokenizer = bundle.require_tokenizer();
  const bool skip_special = flags.get_bool("skip-special-tokens");
  const std::vector<std::string> lists = flags.get_list("ids");
  const auto file = flags.get_string("file");
  if (lists.empty() == !file.has_value()) fail_param(ErrorKind::kUsage, "ids", "give one of --ids 1,2,3 and --file F.jsonl");

  for (const std::string& list : lists) print_text(tokenizer, parse_token_ids(list, "--ids"), skip_special);
  int status = 0;
  if (file.has_value()) {
    read_json_lines(
        *file, "file",
        [&](int64_t, const Json& object) {
          if (!object.is_object() || !object.contains("token_ids") || !object["token_ids"].is_array()) {
            fail_param(ErrorKind::kInvalidRequest, "token_ids", "it must be {{\"token_ids\": [1, 2, 3]}}");
          }
          std::vector<int32_t> ids;
          for (const Json& id : object["token_ids"]) {
            if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
              fail_param(ErrorKind::kInvalidRequest, "token_ids", "{} is not a token id",
                         id.is_number() ? id.dump() : "an entry of token_ids");
            }
            ids.push_back(id.get<int32_t>());
          }
          print_text(tokenizer, ids, skip_special);
        },
        [&](int64_t, const GenerateResult::Failure& failure) {
          write_stdout(Json({{"error", failure.message}}).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
          status = 1;
        });
  }
  return status;
}

}  // namespace minisgl::cli
