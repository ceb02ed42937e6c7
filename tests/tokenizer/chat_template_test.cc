#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Json read_json(const fs::path& path) {
  return Json::parse(read_file(path));
}

/// 2026-01-15 12:00:00, a Thursday.
std::tm fixed_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 0;
  time.tm_mday = 15;
  time.tm_hour = 12;
  time.tm_wday = 4;
  time.tm_yday = 14;
  return time;
}

/// The inputs of one conversation of a golden file: its `messages`, and `tools`, `add_generation_prompt` and `kwargs` if it has them.
ChatInputs inputs_of(const Json& chat) {
  ChatInputs inputs;
  inputs.messages = chat.at("messages");
  inputs.tools = chat.value("tools", Json());
  inputs.add_generation_prompt = chat.value("add_generation_prompt", true);
  inputs.extra = chat.value("kwargs", Json());
  inputs.now = fixed_time();
  return inputs;
}

ChatInputs one_message(const std::string& content = "Hi") {
  ChatInputs inputs;
  inputs.messages = Json::array({Json{{"role", "user"}, {"content", content}}});
  inputs.now = fixed_time();
  return inputs;
}

/// What rendering throws, or an empty message.
Error render_error(const std::string& source, const ChatInputs& inputs = one_message(), ChatLimits limits = {}) {
  try {
    ChatTemplate(source, limits).render(inputs);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::kInternal, "");
}

const char* corpus() {
  return std::getenv("MINISGL_TEST_CORPUS");
}

TEST(ChatTemplate, RendersRealTemplatesAsJinja2Does) {
  if (!corpus()) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_CORPUS is not set";
  fs::path folder = fs::path(corpus()) / "chat_templates";
  Json golden = read_json(folder / "expected.json");
  int texts = 0, refusals = 0;
  for (const auto& [name, conversations] : golden.at("expected").items()) {
    std::optional<ChatTemplate> chat_template;
    ASSERT_NO_THROW(chat_template.emplace(read_file(folder / (name + ".jinja")))) << name;
    for (const auto& [conversation, expected] : conversations.items()) {
      ChatInputs inputs = inputs_of(golden.at("conversations").at(conversation));
      inputs.bos_token = "<s>";
      inputs.eos_token = "</s>";
      SCOPED_TRACE(name + " " + conversation);
      if (expected.contains("error")) {
        EXPECT_THROW(chat_template->render(inputs), Error);
        ++refusals;
      } else {
        EXPECT_NO_THROW(EXPECT_EQ(chat_template->render(inputs), expected.at("text").get<std::string>()));
        ++texts;
      }
    }
  }
  EXPECT_EQ(texts, 124);
  EXPECT_EQ(refusals, 20);
}

TEST(ChatTemplate, RendersTheChatsOfRealTokenizers) {
  if (!corpus()) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_CORPUS is not set";
  Json golden = read_json(fs::path(corpus()) / "tokenizer_expected.json");
  int chats = 0;
  for (const auto& [name, expected] : golden.items()) {
    Json config = read_json(fs::path(corpus()) / "tokenizers" / name / "tokenizer_config.json");
    ChatTemplate chat_template(config.at("chat_template").get<std::string>());
    for (const Json& chat : expected.at("chat")) {
      ChatInputs inputs = inputs_of(chat);
      inputs.bos_token = config.at("bos_token").is_string() ? config.at("bos_token").get<std::string>() : "";
      inputs.eos_token = config.at("eos_token").get<std::string>();
      EXPECT_EQ(chat_template.render(inputs), chat.at("text").get<std::string>()) << name << " chat " << chats;
      ++chats;
    }
  }
  EXPECT_EQ(chats, 18);
}

TEST(ChatTemplate, RendersTheChatsOfSmolLm2) {
  if (!corpus()) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_CORPUS is not set";
  Json golden = read_json(fs::path(corpus()) / "smollm2_expected.json");
  ChatTemplate chat_template(golden.at("meta").at("chat_template").get<std::string>());
  EXPECT_EQ(golden.at("chats").size(), 4u);
  for (const Json& chat : golden.at("chats")) {
    EXPECT_EQ(chat_template.render(inputs_of(chat)), chat.at("rendered").get<std::string>()) << chat.at("name");
  }
}

TEST(ChatTemplate, RaisedTextReachesTheCaller) {
  Error error = render_error("{{ raise_exception('Roles must ' ~ 'alternate') }}");
  EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
  EXPECT_NE(std::string(error.what()).find("Roles must alternate"), std::string::npos) << error.what();
}

struct NamedError {
  const char* source;
  ErrorKind kind;
  const char* message;
};

TEST(ChatTemplate, ErrorsNameLineAndConstruct) {
  const NamedError cases[] = {
      {"a\nb\n{{ x|foo }}", ErrorKind::kBadModel, "chat template, line 3: unknown filter 'foo'"},
      {"\n{{ x is bar }}", ErrorKind::kBadModel, "chat template, line 2: unknown test 'bar'"},
      {"{% frobnicate %}", ErrorKind::kBadModel, "chat template, line 1: unknown tag 'frobnicate'"},
      {"{% include 'x' %}", ErrorKind::kBadModel, "chat template, line 1: the tag 'include' is not supported in chat templates"},
      {"{% extends 'x' %}", ErrorKind::kBadModel, "chat template, line 1: the tag 'extends' is not supported in chat templates"},
      {"{% block x %}{% endblock %}", ErrorKind::kBadModel, "chat template, line 1: the tag 'block' is not supported in chat templates"},
      {"{{ x|random }}", ErrorKind::kBadModel,
       "chat template, line 1: the filter 'random' is not supported: a chat template must be deterministic"},
      {"{% if x %}\n{{ 1 }}", ErrorKind::kBadModel, "chat template, line 2: unexpected end of template, expected 'endif'"},
      {"{% break %}", ErrorKind::kBadModel, "chat template, line 1: 'break' outside of a loop"},
      {"{{ 1 + }}", ErrorKind::kBadModel, "chat template, line 1: unexpected end of print statement"},
      {"{{ (1] }}", ErrorKind::kBadModel, "chat template, line 1: unexpected ']', expected ')'"},
      {"{{ 'abc }}", ErrorKind::kBadModel, "chat template, line 1: a string is not closed"},
      {"{# abc", ErrorKind::kBadModel, "chat template, line 1: missing end of comment tag"},
      {"{{ 99999999999999999999 }}", ErrorKind::kBadModel, "chat template, line 1: integer '99999999999999999999' is out of range"},
      {"\n{% if true %}{{ 1|foo }}{% endif %}", ErrorKind::kInvalidRequest, "chat template, line 2: unknown filter 'foo'"},
      {"\n\n{{ nothing.x }}", ErrorKind::kInvalidRequest, "chat template, line 3: 'nothing' is undefined"},
      {"{{ messages[0].x.y }}", ErrorKind::kInvalidRequest, "chat template, line 1: 'dict object' has no attribute 'x'"},
      {"{{ 'a'.frob() }}", ErrorKind::kInvalidRequest, "chat template, line 1: 'str object' has no attribute 'frob'"},
      {"{{ 'a'.encode() }}", ErrorKind::kInvalidRequest, "chat template, line 1: the method 'encode' of 'str' is not supported"},
      {"{{ frob(1) }}", ErrorKind::kInvalidRequest, "chat template, line 1: 'frob' is undefined"},
      {"{{ messages.append(1) }}", ErrorKind::kInvalidRequest,
       "chat template, line 1: access to attribute 'append' of 'list' object is unsafe."},
      {"{% for x in none %}{% endfor %}", ErrorKind::kInvalidRequest, "chat template, line 1: 'NoneType' object is not iterable"},
      {"{{ lipsum() }}", ErrorKind::kInvalidRequest, "chat template, line 1: the function 'lipsum' is not supported: its text is random"},
      {"{{ 9223372036854775807 + 1 }}", ErrorKind::kInvalidRequest, "chat template, line 1: an integer leaves the range of 64 bits"},
  };
  for (const NamedError& expected : cases) {
    Error error = render_error(expected.source);
    EXPECT_STREQ(error.what(), expected.message) << expected.source;
    EXPECT_EQ(error.kind(), expected.kind) << expected.source;
  }
}

TEST(ChatTemplate, StaticErrorsAreFoundAtConstruction) {
  EXPECT_THROW(ChatTemplate("{% for m in messages %}{{ m|foo }}{% endfor %}"), Error);
  EXPECT_THROW(ChatTemplate("{% macro f() %}{{ 1 is foo }}{% endmacro %}"), Error);
  // jinja2 accepts an unknown filter in a branch; real templates rely on it.
  EXPECT_NO_THROW(ChatTemplate("{% if false %}{{ 1|foo }}{% endif %}{{ 1|foo if false else 2 }}"));
}

/// Bracketed `{{ ... }}` texts nested in each other, and the like.
std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(ChatTemplate, HostileTemplatesAreRefused) {
  const std::string cases[] = {
      "{{ 'a' * 10**9 }}",
      "{{ 'a' * 10**18 }}",
      "{{ [0] * 10**12 }}",
      "{{ range(10**12) }}",
      "{{ range(-9223372036854775807, 9223372036854775807) }}",
      "{{ 10**1000 }}",
      "{{ 2**63 }}",
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson|length }}",
      "{% set a = namespace(s=[1]) %}{% set b = namespace(s=[1]) %}{% for i in range(100) %}{% set a.s = [a.s, a.s] %}"
      "{% set b.s = [b.s, b.s] %}{% endfor %}{{ a.s == b.s }}",
      "{% set ns = namespace(s=(1, 1)) %}{% for i in range(100) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: 1} }}",
      "{% set ns = namespace(s=[]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.l = [ns] %}{{ ns.l }}",
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
      "{% for a in range(100000) %}{% for b in range(100000) if false %}{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{% if x %}{{ [f(x)] }}{% endif %}{% endmacro %}{{ f(1) }}",
      "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
      "{{ 'x'|indent(10**10) }}",
      "{{ [1]|tojson(indent=10**10) }}",
      "{{ 'x'|center(10**10) }}",
      "{{ 'x'.ljust(10**15) }}",
      "{{ 'x'.zfill(10**15) }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '%.1000000000f' % 1 }}",
      "{{ '%*d' % (10**15, 1) }}",
      "{{ '{:1000000000}'.format(1) }}",
      "{{ '{:.1000000000f}'.format(1.5) }}",
      "{{ strftime_now('%1000000000d') }}",
      "{{ ('a' * 1000000).replace('', 'b' * 1000) }}",
      "{{ ('a' * 1000000).replace('a', 'b' * 1000) }}",
      "{{ (['a'] * 100000)|join('b' * 100000) }}",
      "{{ ('b' * 100000).join(['a'] * 100000) }}",
      "{{ ('a' * 10000000)|list }}",
      "{{ ('a,' * 5000000).split(',') }}",
      "{{ [1]|batch(10**12, 0)|list }}",
      "{{ [1]|slice(10**12)|list }}",
      "{% for i in range(100000) %}{{ ('a' * 1000000)|upper|length }}{% endfor %}",
      "{% set s = 'é' * 1000000 %}{% for i in range(100000) %}{% if s[900000] %}{% endif %}{% endfor %}",
      "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% if 'b' in s %}{% endif %}{% endfor %}",
      "{% set l = range(100000)|list %}{% for i in l %}{% if -1 in l %}{% endif %}{% endfor %}",
      "{% set l = range(100000)|list %}{% for i in l %}{% if l|sort|length %}{% endif %}{% endfor %}",
      "{% for i in range(100000) %}{% if range(100000)|sum %}{% endif %}{% endfor %}",
      "{% set ns = namespace(d={}) %}{% for i in range(100000) %}{% set ns.d = dict(ns.d, **{i|string: i}) %}{% endfor %}",
      "{% set l = [[[[[1] * 1000] * 1000] * 1000] * 1000] * 1000 %}{{ l|tojson }}",
      "{% set x %}{% for i in range(100000) %}" + std::string(1000, 'x') + "{% endfor %}{% endset %}",
      repeat("{% set x %}", 190) + "{% for i in range(100000) %}" + std::string(1000, 'x') + "{% endfor %}" + repeat("{% endset %}", 190),
      "{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}",
      "{{ " + repeat("[", 100000) + repeat("]", 100000) + " }}",
      "{{ " + repeat("-", 100000) + "1 }}",
      "{{ " + repeat("not ", 100000) + "1 }}",
      "{{ x" + repeat(".a", 100000) + " }}",
      "{{ x" + repeat("|list", 100000) + " }}",
      "{{ x" + repeat("(1)", 100000) + " }}",
      "{{ x" + repeat(" is defined", 100000) + " }}",
      "{{ 1" + repeat(" if 1 else 1", 100000) + " }}",
      "{{ " + repeat("{1:", 100000) + " }}",
      repeat("{% if 1 %}", 100000) + repeat("{% endif %}", 100000),
      repeat("{% for i in x %}", 100000),
      repeat("{% macro f() %}", 100000),
      "{% set " + repeat("(", 100000) + "x = 1 %}",
      "{{ " + repeat("(", 90) + "x" + repeat(".a.b.c.d.e.f.g.h.i.j)", 90) + " }}",
  };
  // A tenth of the usual steps: the same errors, sooner.
  ChatLimits limits;
  limits.max_steps /= 10;
  for (const std::string& source : cases) {
    Error error = render_error(source, one_message(), limits);
    EXPECT_NE(std::string(error.what()), "") << source.substr(0, 200) << " was rendered";
    EXPECT_TRUE(error.kind() == ErrorKind::kInvalidRequest || error.kind() == ErrorKind::kBadModel) << error.what();
    EXPECT_LT(std::string(error.what()).size(), 300u) << source.substr(0, 200);
  }
}

TEST(ChatTemplate, DeepButLegalNestingFitsTheStack) {
  std::string deepest = "{{ " + repeat("(", 45) + "1" + repeat("|string|trim|string)", 45) + " }}";
  EXPECT_EQ(ChatTemplate(deepest).render(one_message()), "1");
  std::string recursion = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}x{% endmacro %}{{ f(100) }}";
  EXPECT_EQ(ChatTemplate(recursion).render(one_message()), std::string(101, 'x'));
  EXPECT_EQ(ChatTemplate("{{ 1" + repeat(" + 1", 5000) + " }}").render(one_message()), "5001");
  EXPECT_EQ(ChatTemplate("{% if " + repeat("0 or ", 5000) + "1 %}y{% endif %}").render(one_message()), "y");
}

TEST(ChatTemplate, LimitsCanBeSet) {
  ChatLimits limits;
  limits.max_steps = 100;
  EXPECT_STREQ(render_error("{% for i in range(50) %}{{ i }}{% endfor %}", one_message(), limits).what(),
               "chat template, line 1: the template needs more than 100 steps");
  limits = {};
  limits.max_output_bytes = 100;
  EXPECT_STREQ(render_error("{{ 'a' * 50 }}\n{{ 'a' * 51 }}", one_message(), limits).what(),
               "chat template, line 2: the template makes a text or list of more than 100 bytes");
  limits = {};
  limits.max_memory_bytes = 10000;
  EXPECT_STREQ(render_error("{{ messages|length }}", one_message(std::string(20000, 'x')), limits).what(),
               "chat template, line 1: the template needs more than 10000 bytes of memory");
}

TEST(ChatTemplate, MemoryOfPassingValuesIsGivenBack) {
  // 2,000 rounds of a text that grows to 200 kB: 200 MB pass through, never more than a fraction lives.
  ChatLimits limits;
  limits.max_memory_bytes = 2u << 20;
  ChatTemplate chat_template(
      "{% set ns = namespace(s='') %}{% for i in range(2000) %}{% set ns.s = ns.s + 'x' * 100 %}{% endfor %}{{ ns.s|length }}", limits);
  EXPECT_EQ(chat_template.render(one_message()), "200000");
}

TEST(ChatTemplate, BadInputsAreNamed) {
  ChatInputs inputs = one_message();
  inputs.extra = Json::array();
  try {
    ChatTemplate("x").render(inputs);
    FAIL() << "an array was taken for the arguments";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
    EXPECT_EQ(error.param(), "chat_template_kwargs");
  }
  Json deep = 1;
  for (int i = 0; i < 100000; ++i) deep = Json::array({std::move(deep)});
  inputs = one_message();
  inputs.tools = std::move(deep);
  EXPECT_EQ(render_error("{{ tools }}", inputs).kind(), ErrorKind::kInvalidRequest);
  EXPECT_EQ(render_error("{{ messages }}", one_message("\xff")).kind(), ErrorKind::kInvalidRequest);
  EXPECT_EQ(render_error("\xff").kind(), ErrorKind::kBadModel);
}

TEST(ChatTemplate, ArgumentsBecomeVariablesAndWin) {
  ChatInputs inputs = one_message();
  inputs.bos_token = "<s>";
  inputs.extra = Json{{"enable_thinking", false}, {"bos_token", "<b>"}};
  EXPECT_EQ(ChatTemplate("{{ bos_token }}{{ enable_thinking }}{{ documents }}{{ eos_token }}.").render(inputs), "<b>FalseNone.");
}

TEST(ChatTemplate, OneTemplateRendersOnManyThreads) {
  ChatTemplate chat_template("{% for m in messages %}{{ m.role ~ ': ' ~ m.content }}{% endfor %}{% macro f() %}!{% endmacro %}{{ f() }}");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) texts[i] = chat_template.render(one_message(std::to_string(i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], "user: " + std::to_string(i) + "!");
}

}  // namespace
}  // namespace minisgl
