#include "minisgl/llm.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "llm/llm_impl.h"
#include "llm/llm_test_util.h"
#include "support/temporary_folder.h"

namespace minisgl {
namespace {

using test::fixture_config;
using test::generate_one;
using test::greedy_request;

GenerateRequest text_request(const std::string& text, int64_t max_tokens) {
  GenerateRequest request;
  request.prompt = TextPrompt{text};
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

/// One engine for all cases: many calls per instance are part of what is tested.
class LlmTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { llm_ = std::make_unique<LLM>(fixture_config("tiny-qwen3")); }
  static void TearDownTestSuite() { llm_.reset(); }
  static LLM& llm() { return *llm_; }

 private:
  static std::unique_ptr<LLM> llm_;
};
std::unique_ptr<LLM> LlmTest::llm_;

TEST_F(LlmTest, TextInTextOut) {
  const GenerateResult result = generate_one(llm(), text_request("Hello world, this is a test.", 24));
  ASSERT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.token_ids.size(), 24u);
  const Tokenizer& tokenizer = *llm().impl().tokenizer.tokenizer;
  EXPECT_EQ(result.prompt_token_ids, tokenizer.encode("Hello world, this is a test."));
  EXPECT_EQ(result.text, tokenizer.decode(result.token_ids));
}

TEST(LlmFailure, AnExceptionOfTheSchedulerEndsTheInstance) {
  LLM llm(fixture_config("tiny-qwen3"));
  Executor& executor = llm.impl().engine->executor();
  // Handles that somebody else holds leave no room for the scheduler's step, which is a bug and throws.
  std::vector<StepHandle> handles;
  for (int i = 0; i < executor.max_in_flight(); ++i) handles.push_back(executor.launch(StepPlan{}));
  EXPECT_THROW(generate_one(llm, text_request("Hello", 4)), Error);
  EXPECT_EQ(llm.impl().on_output, nullptr);
  handles.clear();
  try {
    generate_one(llm, text_request("Hello", 4));
    FAIL() << "a call after a failure";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnavailable);
  }
}

TEST_F(LlmTest, StreamedPiecesMakeTheResult) {
  std::vector<GenerateRequest> requests;
  for (const char* text : {"One", "Two two", "Three three three"}) requests.push_back(text_request(text, 17));
  requests[1].sampling.n = 2;
  requests[1].sampling.temperature = 1.0;
  std::map<std::pair<int64_t, int>, std::pair<std::string, std::vector<int32_t>>> seen;
  std::map<std::pair<int64_t, int>, GenerateResult> finished;
  const std::vector<GenerateResult> results = llm().generate(requests, [&](const StreamEvent& event) {
    const std::pair key{event.index, event.choice};
    EXPECT_FALSE(finished.contains(key)) << "nothing after the last event";
    seen[key].first += event.text;
    seen[key].second.insert(seen[key].second.end(), event.token_ids.begin(), event.token_ids.end());
    if (event.finished != nullptr) finished[key] = *event.finished;
  });
  ASSERT_EQ(results.size(), 4u);
  for (const GenerateResult& result : results) {
    const std::pair key{result.index, result.choice};
    EXPECT_EQ(seen[key].first, result.text);
    EXPECT_EQ(seen[key].second, result.token_ids);
    ASSERT_TRUE(finished.contains(key));
    EXPECT_EQ(finished[key].text, result.text);
  }
  EXPECT_EQ(results[2].index, 1);
  EXPECT_EQ(results[2].choice, 1);
}

TEST_F(LlmTest, StopStringsAcrossTokenBorders) {
  GenerateRequest request = text_request("Once upon a time", 60);
  request.sampling.temperature = 1.0;
  request.sampling.seed = 5;
  const GenerateResult whole = generate_one(llm(), request);
  const Tokenizer& tokenizer = *llm().impl().tokenizer.tokenizer;
  int borders = 0;
  for (size_t t = 5; t + 1 < whole.token_ids.size(); ++t) {
    // The last byte of what precedes token t and the first of what it adds, where both are ASCII: a stop string that two tokens share.
    const std::string before = tokenizer.decode({whole.token_ids.data(), t});
    const std::string after = tokenizer.decode({whole.token_ids.data(), t + 1});
    if (before.empty() || after.size() <= before.size() || after.compare(0, before.size(), before) != 0) continue;
    if ((before.back() & 0x80) != 0 || (after[before.size()] & 0x80) != 0) continue;
    const std::string stop = after.substr(before.size() - 1, 2);
    GenerateRequest stopped_request = request;
    stopped_request.sampling.stop = {stop};
    std::string streamed;
    const GenerateResult stopped = llm().generate({&stopped_request, 1}, [&](const StreamEvent& event) { streamed += event.text; }).at(0);
    EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(stop))) << "stop '" << stop << "'";
    EXPECT_EQ(streamed, stopped.text) << "nothing of a stop string leaks";
    EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
    EXPECT_EQ(std::get<std::string>(stopped.matched_stop), stop);
    ++borders;
  }
  EXPECT_GE(borders, 3);
}

TEST_F(LlmTest, StopTokensAndEndOfSequence) {
  GenerateRequest request = greedy_request({915, 271, 64});
  const GenerateResult whole = generate_one(llm(), request);
  const int32_t stop = whole.token_ids[5];
  const size_t first = static_cast<size_t>(std::find(whole.token_ids.begin(), whole.token_ids.end(), stop) - whole.token_ids.begin());
  request.sampling.stop_token_ids = {stop};
  GenerateResult stopped = generate_one(llm(), request);
  EXPECT_EQ(stopped.token_ids.size(), first + 1);
  EXPECT_EQ(std::get<int32_t>(stopped.matched_stop), stop);
  EXPECT_EQ(stopped.text, llm().impl().tokenizer.tokenizer->decode({stopped.token_ids.data(), first}));

  // A bias makes the end-of-sequence token win at once; min_tokens holds it off.
  const int32_t eos = llm().impl().limits.eos_token_ids.at(0);
  request = greedy_request({915, 271, 64});
  request.sampling.logit_bias = {{eos, 100.0}};
  EXPECT_EQ(generate_one(llm(), request).token_ids, std::vector<int32_t>(32, eos)) << "ignore_eos";
  request.sampling.ignore_eos = false;
  stopped = generate_one(llm(), request);
  EXPECT_EQ(stopped.token_ids, std::vector<int32_t>{eos});
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(stopped.matched_stop));
  EXPECT_EQ(stopped.text, "");
  request.sampling.min_tokens = 4;
  stopped = generate_one(llm(), request);
  ASSERT_EQ(stopped.token_ids.size(), 5u);
  EXPECT_EQ(std::count(stopped.token_ids.begin(), stopped.token_ids.end(), eos), 1);
}

TEST_F(LlmTest, ChoicesOfASeedAreDifferentAndRepeatable) {
  GenerateRequest request = text_request("The quick brown fox", 30);
  request.sampling.temperature = 1.0;
  request.sampling.seed = 1234;
  request.sampling.n = 3;
  const std::vector<GenerateResult> first = llm().generate({&request, 1});
  const std::vector<GenerateResult> second = llm().generate({&request, 1});
  ASSERT_EQ(first.size(), 3u);
  std::set<std::string> texts;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first[i].token_ids, second[i].token_ids);
    EXPECT_EQ(first[i].choice, static_cast<int>(i));
    EXPECT_EQ(first[i].seed, 1234u);
    texts.insert(first[i].text);
  }
  EXPECT_EQ(texts.size(), 3u);
}

TEST_F(LlmTest, AnUnseededDrawReportsASeedThatRepeatsIt) {
  GenerateRequest request = text_request("Seeds", 20);
  request.sampling.temperature = 1.0;
  const GenerateResult drawn = generate_one(llm(), request);
  const GenerateResult other = generate_one(llm(), request);
  EXPECT_NE(drawn.seed, other.seed);
  request.sampling.seed = drawn.seed;
  EXPECT_EQ(generate_one(llm(), request).token_ids, drawn.token_ids);
}

TEST(LlmPrefixCache, WhatPromptsShareIsComputedOnce) {
  for (const int64_t page_size : {1, 16}) {
    EngineConfig config = fixture_config("tiny-qwen3");
    config.page_size = page_size;
    LLM llm(config);
    std::vector<int32_t> shared(160);
    for (int32_t i = 0; i < 160; ++i) shared[static_cast<size_t>(i)] = 10 + i * 7 % 500;
    std::vector<GenerateRequest> requests;
    for (int32_t i = 0; i < 4; ++i) {
      std::vector<int32_t> prompt = shared;
      prompt.insert(prompt.end(), {20 + i, 30 + i, 40 + i});
      requests.push_back(greedy_request(prompt, 20));
    }
    const std::vector<GenerateResult> results = llm.generate(requests);
    EXPECT_EQ(results[0].cached_tokens, 0);
    for (size_t i = 1; i < 4; ++i) EXPECT_EQ(results[i].cached_tokens, 160) << "page size " << page_size;

    // A next turn finds every whole page of the first, its output included; the last token of an output is never computed.
    std::vector<int32_t> turn = results[0].prompt_token_ids;
    turn.insert(turn.end(), results[0].token_ids.begin(), results[0].token_ids.end());
    const auto computed = static_cast<int64_t>(turn.size()) - 1;
    turn.insert(turn.end(), {50, 51, 52});
    EXPECT_EQ(generate_one(llm, greedy_request(turn, 4)).cached_tokens, computed / page_size * page_size);
  }
}

TEST_F(LlmTest, ChatsRenderTheModelsTemplate) {
  GenerateRequest request;
  request.prompt = ChatPrompt{.messages_json = R"([{"role":"user","content":"Hi"}])", .tools_json = "", .template_kwargs_json = ""};
  request.sampling.max_tokens = 4;
  const GenerateResult result = generate_one(llm(), request);
  ASSERT_FALSE(result.error) << result.error->message;
  const Tokenizer& tokenizer = *llm().impl().tokenizer.tokenizer;
  EXPECT_EQ(result.prompt_token_ids,
            tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", {.add_special_tokens = false}));
}

TEST_F(LlmTest, ABadRequestFailsAloneAndNamesItsField) {
  std::vector<std::pair<std::string, GenerateRequest>> bad;
  bad.emplace_back("prompt", greedy_request({}));
  bad.emplace_back("prompt", greedy_request({5, 1024}));
  bad.emplace_back("prompt", greedy_request({-1}));
  bad.emplace_back("prompt", greedy_request(std::vector<int32_t>(5000, 1)));
  bad.emplace_back("prompt", text_request("", 5));
  bad.emplace_back("max_tokens", greedy_request({1}, 0));
  bad.emplace_back("temperature", greedy_request({1}));
  bad.back().second.sampling.temperature = std::nan("");
  bad.emplace_back("messages", GenerateRequest{.prompt = ChatPrompt{.messages_json = "[{", .tools_json = "", .template_kwargs_json = ""},
                                               .sampling = {}});
  bad.emplace_back("messages", GenerateRequest{.prompt = ChatPrompt{.messages_json = "[]", .tools_json = "", .template_kwargs_json = ""},
                                               .sampling = {}});
  bad.emplace_back(
      "messages",
      GenerateRequest{.prompt = ChatPrompt{.messages_json = R"([{"content":"x"}])", .tools_json = "", .template_kwargs_json = ""},
                      .sampling = {}});
  bad.emplace_back("tools", GenerateRequest{.prompt = ChatPrompt{.messages_json = R"([{"role":"user","content":"x"}])",
                                                                 .tools_json = "{}",
                                                                 .template_kwargs_json = ""},
                                            .sampling = {}});
  std::vector<GenerateRequest> requests;
  for (const auto& [field, request] : bad) {
    requests.push_back(request);
    requests.push_back(greedy_request({7, 8}, 3));
  }
  size_t finished_events = 0;
  const std::vector<GenerateResult> results =
      llm().generate(requests, [&](const StreamEvent& event) { finished_events += event.finished ? 1 : 0; });
  ASSERT_EQ(results.size(), requests.size());
  EXPECT_EQ(finished_events, requests.size());
  for (size_t i = 0; i < bad.size(); ++i) {
    const GenerateResult& result = results[2 * i];
    EXPECT_EQ(result.finish_reason, FinishReason::kError);
    ASSERT_TRUE(result.error) << bad[i].first;
    EXPECT_EQ(result.error->param, bad[i].first) << result.error->message;
    EXPECT_EQ(result.error->message.find('\n'), std::string::npos);
    EXPECT_EQ(results[2 * i + 1].token_ids.size(), 3u) << "the others run";
  }
}

TEST_F(LlmTest, TheLimitCutsTheOutput) {
  EngineConfig config = fixture_config("tiny-qwen3");
  config.max_model_len = 20;
  LLM small(config);
  const GenerateResult result = generate_one(small, greedy_request(std::vector<int32_t>(15, 3), 100));
  EXPECT_EQ(result.token_ids.size(), 5u);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(generate_one(small, greedy_request(std::vector<int32_t>(20, 3), 1)).error->type, "context_length_exceeded");
}

TEST_F(LlmTest, AbortFromAnEventKeepsWhatThereIs) {
  std::vector<GenerateRequest> requests(3, greedy_request({1, 2, 3}, 500));
  int events = 0;
  const std::vector<GenerateResult> results = llm().generate(requests, [&](const StreamEvent&) {
    if (++events == 10) llm().abort();
  });
  for (const GenerateResult& result : results) {
    EXPECT_EQ(result.finish_reason, FinishReason::kAbort);
    EXPECT_LT(result.token_ids.size(), 20u);
    EXPECT_FALSE(result.token_ids.empty());
  }
  EXPECT_EQ(generate_one(llm(), greedy_request({1, 2, 3}, 5)).token_ids.size(), 5u) << "the next call starts afresh";
}

TEST_F(LlmTest, AbortFromAnotherThread) {
  GenerateRequest request = greedy_request({1, 2, 3}, 4000);
  std::atomic<bool> started{false};
  std::thread aborter([&] {
    while (!started) std::this_thread::yield();
    llm().abort();
  });
  const GenerateResult result = llm().generate({&request, 1}, [&](const StreamEvent&) { started = true; }).at(0);
  aborter.join();
  EXPECT_EQ(result.finish_reason, FinishReason::kAbort);
}

TEST_F(LlmTest, AnExceptionOfTheCallerLeavesTheEngineUsable) {
  std::vector<GenerateRequest> requests(3, greedy_request({1, 2, 3}, 50));
  EXPECT_THROW(llm().generate(requests, [](const StreamEvent&) { throw std::runtime_error("closed"); }), std::runtime_error);
  EXPECT_EQ(generate_one(llm(), greedy_request({1, 2, 3}, 5)).token_ids.size(), 5u);
}

TEST_F(LlmTest, SeveralInstancesInOneProcess) {
  LLM other(fixture_config("tiny-llama3"));
  const GenerateRequest request = greedy_request({1, 2, 3}, 8);
  const GenerateResult before = generate_one(llm(), request);
  GenerateResult here;
  GenerateResult there;
  std::thread thread([&] { there = generate_one(other, request); });
  here = generate_one(llm(), request);
  thread.join();
  EXPECT_EQ(here.token_ids, before.token_ids);
  EXPECT_EQ(there.token_ids, generate_one(other, request).token_ids);
}

TEST(LlmLoad, IdsInAndOutWithoutATokenizer) {
  EngineConfig config = fixture_config("tiny-qwen3");
  config.tokenizer = "none";
  LLM llm(config);
  const GenerateResult result = generate_one(llm, greedy_request({1, 2, 3}, 4));
  EXPECT_EQ(result.token_ids.size(), 4u);
  EXPECT_EQ(result.text, "");
  const GenerateResult text = generate_one(llm, text_request("hello", 4));
  ASSERT_TRUE(text.error);
  EXPECT_EQ(text.error->param, "prompt");
}

TEST(LlmLoad, BadConfigurationsAreOneLineOfErrorEach) {
  const auto message = [](const std::function<void(EngineConfig&)>& change) {
    EngineConfig config = fixture_config("tiny-qwen3");
    change(config);
    try {
      LLM llm(config);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message([](EngineConfig&) {}), "");
  EXPECT_NE(message([](EngineConfig& c) { c.model += "x"; }).find("tiny-qwen3"), std::string::npos) << "names what is there";
  EXPECT_NE(message([](EngineConfig& c) { c.dtype = "int3"; }).find("int3"), std::string::npos);
  EXPECT_NE(message([](EngineConfig& c) { c.tokenizer = "/nowhere"; }).find("/nowhere"), std::string::npos);
  EXPECT_NE(message([](EngineConfig& c) { c.chat_template = "/nowhere.jinja"; }).find("/nowhere.jinja"), std::string::npos);
  EXPECT_NE(message([](EngineConfig& c) { c.now = "today"; }).find("today"), std::string::npos);
  EXPECT_NE(message([](EngineConfig& c) { c.num_pages = int64_t{1} << 26; }).find("num-pages"), std::string::npos);
}

TEST(LlmLoad, WeightsLargerThanMemoryAreRefusedWithNumbers) {
  // A configuration of 10^15 parameters; nothing is allocated for it.
  const test::TemporaryFolder folder;
  nlohmann::json config = fixtures::read_json(std::filesystem::path(MINISGL_TEST_DATA) / "models/tiny-qwen3/config.json");
  config["hidden_size"] = 16384;
  config["intermediate_size"] = 131072;
  config["num_hidden_layers"] = 400;
  config["layer_types"] = std::vector<std::string>(400, "full_attention");
  folder.write("config.json", config.dump());
  EngineConfig engine;
  engine.model = folder.path().string();
  engine.tokenizer = "none";
  engine.dummy_weights = true;
  try {
    LLM llm(engine);
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory) << error.what();
    EXPECT_NE(std::string(error.what()).find("GiB"), std::string::npos) << error.what();
  }
}

TEST(TokenizerBundle, NeedsOnlyTokenizerJson) {
  const std::filesystem::path source = std::filesystem::path(MINISGL_TEST_DATA) / "models/tiny-qwen3";
  const test::TemporaryFolder folder;
  std::filesystem::copy_file(source / "tokenizer.json", folder / "tokenizer.json");
  EngineConfig config;
  config.model = folder.path().string();
  const TokenizerBundle bundle = load_tokenizer_bundle(config);
  ASSERT_TRUE(bundle.tokenizer);
  EXPECT_FALSE(bundle.encode(TextPrompt{"hello"}).empty());
  EXPECT_THROW(bundle.require_chat_template(), Error);
}

TEST(TokenizerBundle, NamedTemplatesOfTokenizerConfig) {
  const std::filesystem::path source = std::filesystem::path(MINISGL_TEST_DATA) / "models/tiny-qwen3";
  const test::TemporaryFolder folder;
  std::filesystem::copy_file(source / "tokenizer.json", folder / "tokenizer.json");
  folder.write("tokenizer_config.json",
               R"({"bos_token":{"content":"<B>"},"eos_token":"<E>","chat_template":[{"name":"other","template":"no"},)"
               R"({"name":"default","template":"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"}]})");
  EngineConfig config;
  config.model = folder.path().string();
  const ChatPrompt chat{.messages_json = R"([{"role":"user","content":"x"}])", .tools_json = "", .template_kwargs_json = ""};
  EXPECT_EQ(load_tokenizer_bundle(config).render(chat), "<B>x<E>");
  config.bos_token = "[b]";
  EXPECT_EQ(load_tokenizer_bundle(config).render(chat), "[b]x<E>");
  folder.write("chat_template.jinja", "file {{ strftime_now('%d %b %Y') }}");
  config.now = "2026-01-15T12:00:00";
  EXPECT_EQ(load_tokenizer_bundle(config).render(chat), "file 15 Jan 2026");
}

TEST(TokenizerBundle, RefusesATemplateThatIsAFifo) {
  const test::TemporaryFolder folder;
  const std::string fifo = (folder / "chat_template.jinja").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EngineConfig config = fixture_config("tiny-qwen3");
  config.chat_template = fifo;
  try {
    load_tokenizer_bundle(config);
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(error.what()).find("not a regular file"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace minisgl
