#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/tokenizer_document.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/utf8.h"

namespace minisgl {
namespace {

[[noreturn]] void unsupported_type(const JsonNode& node, const std::string& type, const char* supported) {
  fail_param(ErrorKind::kNotSupported, "tokenizer.json", "{}.type is '{}'; supported: {}", node.place(), type, supported);
}

// {"String": "..."} or {"Regex": "..."}.
std::variant<std::string, Regex> read_pattern(const JsonNode& node) {
  if (const auto regex = node.find("Regex")) return Regex(regex->string(), regex->place());
  const JsonNode literal = node.at("String");
  std::string text = literal.string();
  if (text.empty()) fail(ErrorKind::kNotSupported, "{} is empty", literal.place());
  return text;
}

// A string of exactly one character.
std::string read_character(const JsonNode& node) {
  std::string text = node.string();
  size_t end = 0;
  if (!text.empty()) next_code_point(text, end);
  if (text.empty() || end != text.size()) fail(ErrorKind::kBadModel, "{} is '{}'; expected one character", node.place(), text);
  return text;
}

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string name = node.string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  fail(ErrorKind::kBadModel, "{} is '{}'; allowed: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous", node.place(), name);
}

PreTokenizer::Prepend read_prepend_scheme(const JsonNode& metaspace) {
  PreTokenizer::Prepend scheme = PreTokenizer::Prepend::kAlways;
  if (const auto node = metaspace.find("prepend_scheme")) {
    const std::string name = node->string();
    if (name == "always") {
      scheme = PreTokenizer::Prepend::kAlways;
    } else if (name == "first") {
      scheme = PreTokenizer::Prepend::kFirst;
    } else if (name == "never") {
      scheme = PreTokenizer::Prepend::kNever;
    } else {
      fail(ErrorKind::kBadModel, "{} is '{}'; allowed: always, first, never", node->place(), name);
    }
    if (scheme != PreTokenizer::Prepend::kNever && !metaspace.boolean_or("add_prefix_space", true)) {
      fail(ErrorKind::kBadModel, "{}: add_prefix_space is false, but prepend_scheme is '{}'", metaspace.place(), name);
    }
  } else if (!metaspace.boolean_or("add_prefix_space", true)) {
    scheme = PreTokenizer::Prepend::kNever;  // the older form
  }
  return scheme;
}

void read_normalizer(const JsonNode& node, Normalizer& normalizer) {
  const std::string type = node.at("type").string();
  if (type == "Sequence") {
    for (const JsonNode& step : node.at("normalizers").elements()) read_normalizer(step, normalizer);
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    normalizer.add(Normalizer::UnicodeForm{.compose = type.back() == 'C', .compatibility = type[2] == 'K'});
  } else if (type == "Lowercase") {
    normalizer.add(Normalizer::Lowercase{});
  } else if (type == "Strip") {
    normalizer.add(Normalizer::Strip{node.at("strip_left").boolean(), node.at("strip_right").boolean()});
  } else if (type == "StripAccents") {
    normalizer.add(Normalizer::StripAccents{});
  } else if (type == "Replace") {
    normalizer.add(Replacement{read_pattern(node.at("pattern")), node.at("content").string()});
  } else if (type == "Prepend") {
    normalizer.add(Normalizer::Prepend{node.at("prepend").string()});
  } else if (type == "ByteLevel") {
    normalizer.add(Normalizer::ByteLevel{});
  } else {
    unsupported_type(node, type, "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, ByteLevel");
  }
}

void read_pre_tokenizer(const JsonNode& node, PreTokenizer& pre_tokenizer) {
  const std::string type = node.at("type").string();
  if (type == "Sequence") {
    for (const JsonNode& step : node.at("pretokenizers").elements()) read_pre_tokenizer(step, pre_tokenizer);
  } else if (type == "Split") {
    pre_tokenizer.add(
        PreTokenizer::Split{read_pattern(node.at("pattern")), read_behavior(node.at("behavior")), node.boolean_or("invert", false)});
  } else if (type == "ByteLevel") {
    PreTokenizer::ByteLevel step;
    step.add_prefix_space = node.boolean_or("add_prefix_space", true);
    if (node.boolean_or("use_regex", true)) step.split.emplace_back(PreTokenizer::kGpt2Pattern, node.place());
    pre_tokenizer.add(std::move(step));
  } else if (type == "Metaspace") {
    pre_tokenizer.add(
        PreTokenizer::Metaspace{read_character(node.at("replacement")), read_prepend_scheme(node), node.boolean_or("split", true)});
  } else if (type == "Digits") {
    const bool individual = node.boolean_or("individual_digits", false);
    pre_tokenizer.add(PreTokenizer::SplitCharacters{is_numeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    const auto behavior = node.find("behavior");
    pre_tokenizer.add(PreTokenizer::SplitCharacters{is_punctuation, behavior ? read_behavior(*behavior) : SplitBehavior::kIsolated});
  } else if (type == "Whitespace") {
    pre_tokenizer.add(PreTokenizer::Whitespace{});
  } else if (type == "WhitespaceSplit") {
    pre_tokenizer.add(PreTokenizer::SplitCharacters{is_white_space, SplitBehavior::kRemoved});
  } else {
    unsupported_type(node, type, "Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit");
  }
}

void read_decoder(const JsonNode& node, std::vector<TextDecoder::Step>& steps) {
  const std::string type = node.at("type").string();
  if (type == "Sequence") {
    for (const JsonNode& step : node.at("decoders").elements()) read_decoder(step, steps);
  } else if (type == "ByteLevel") {
    steps.emplace_back(TextDecoder::ByteLevel{});
  } else if (type == "Metaspace") {
    steps.emplace_back(
        TextDecoder::Metaspace{read_character(node.at("replacement")), read_prepend_scheme(node) != PreTokenizer::Prepend::kNever});
  } else if (type == "Replace") {
    steps.emplace_back(Replacement{read_pattern(node.at("pattern")), node.at("content").string()});
  } else if (type == "ByteFallback") {
    steps.emplace_back(TextDecoder::ByteFallback{});
  } else if (type == "Fuse") {
    steps.emplace_back(TextDecoder::Fuse{});
  } else if (type == "Strip") {
    steps.emplace_back(TextDecoder::Strip{read_character(node.at("content")), node.at("start").integer(0, INT32_MAX),
                                          node.at("stop").integer(0, INT32_MAX)});
  } else {
    unsupported_type(node, type, "Sequence, ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip");
  }
}

// Puts `before` and `after` around what earlier processors made.
void surround(const std::vector<int32_t>& before, const std::vector<int32_t>& after, TokenizerParts& parts) {
  parts.prefix_ids.insert(parts.prefix_ids.begin(), before.begin(), before.end());
  parts.suffix_ids.insert(parts.suffix_ids.end(), after.begin(), after.end());
}

void read_template(const JsonNode& node, TokenizerParts& parts) {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  bool text_seen = false;
  for (const JsonNode& piece : node.at("single").elements()) {
    if (const auto sequence = piece.find("Sequence")) {
      if (text_seen || sequence->at("id").string() != "A")
        fail(ErrorKind::kNotSupported, "{}: only one Sequence, A, is supported", piece.place());
      text_seen = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").at("id").string();
    for (const JsonNode& id : node.at("special_tokens").at(name).at("ids").elements()) {
      (text_seen ? after : before).push_back(static_cast<int32_t>(id.integer(0, kMaxTokenId)));
    }
  }
  if (!text_seen) fail(ErrorKind::kBadModel, "{}.single has no Sequence A", node.place());
  surround(before, after, parts);
}

void read_post_processor(const JsonNode& node, TokenizerParts& parts) {
  const std::string type = node.at("type").string();
  if (type == "Sequence") {
    for (const JsonNode& step : node.at("processors").elements()) read_post_processor(step, parts);
  } else if (type == "TemplateProcessing") {
    read_template(node, parts);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    auto id_of = [&](const char* key) {
      const JsonNode pair = node.at(key);
      const std::vector<JsonNode> elements = pair.elements();
      if (elements.size() != 2) fail(ErrorKind::kBadModel, "{}: expected [token, id]", pair.place());
      return static_cast<int32_t>(elements[1].integer(0, kMaxTokenId));
    };
    surround({id_of("cls")}, {id_of("sep")}, parts);
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets only
    unsupported_type(node, type, "Sequence, TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing");
  }
}

AddedToken read_added_token(const JsonNode& node) {
  AddedToken token;
  token.id = static_cast<int32_t>(node.at("id").integer(0, kMaxTokenId));
  token.content = node.at("content").string();
  token.special = node.boolean_or("special", false);
  token.lstrip = node.boolean_or("lstrip", false);
  token.rstrip = node.boolean_or("rstrip", false);
  token.single_word = node.boolean_or("single_word", false);
  token.normalized = node.boolean_or("normalized", !token.special);
  if (token.content.empty()) fail(ErrorKind::kBadModel, "{}.content is empty", node.place());
  return token;
}

BpeModel read_model(const JsonNode& node, TokenizerDocument& document, bool words_are_bytes) {
  if (!document.has_vocabulary) fail(ErrorKind::kBadModel, "{}.vocab is missing or not an object", node.place());
  node.at("merges").elements();
  if (const auto dropout = node.find("dropout"); dropout && !dropout->is_zero()) {
    fail(ErrorKind::kNotSupported, "{} makes the tokens random; supported: null or 0", dropout->place());
  }
  BpeOptions options;
  options.fuse_unk = node.boolean_or("fuse_unk", false);
  options.byte_fallback = node.boolean_or("byte_fallback", false);
  options.ignore_merges = node.boolean_or("ignore_merges", false);
  options.continuing_prefix = node.string_or("continuing_subword_prefix", "");
  options.end_suffix = node.string_or("end_of_word_suffix", "");
  options.words_are_bytes = words_are_bytes;
  if (const auto unk = node.find("unk_token")) {
    options.unk_id = document.vocabulary.find(unk->string());
    if (options.unk_id == Vocabulary::kNone)
      fail(ErrorKind::kBadModel, "{} is '{}', which is not in the vocabulary", unk->place(), unk->string());
  }
  return BpeModel(std::move(document.vocabulary), document.merge_pairs(), std::move(options), node.place() + ".merges");
}

}  // namespace

TokenizerParts read_tokenizer_json(std::string_view json, const std::string& name) {
  TokenizerDocument document = parse_tokenizer_document(json, name);
  const JsonNode root(document.root, name + ": ");
  TokenizerParts parts;
  // The model's type first: the other parts of a tokenizer of another type say less about what is wrong with it.
  const JsonNode model = root.at("model");
  if (const auto type = model.find("type"); type && type->string() != "BPE") unsupported_type(model, type->string(), "BPE");
  if (const auto node = root.find("normalizer")) read_normalizer(*node, parts.normalizer);
  if (const auto node = root.find("pre_tokenizer")) read_pre_tokenizer(*node, parts.pre_tokenizer);
  parts.model = read_model(model, document, parts.pre_tokenizer.ends_in_bytes());
  if (const auto node = root.find("post_processor")) read_post_processor(*node, parts);
  std::vector<TextDecoder::Step> steps;
  const auto decoder = root.find("decoder");
  if (decoder) read_decoder(*decoder, steps);
  parts.decoder = TextDecoder(std::move(steps), name + ": decoder");
  if (const auto node = root.find("added_tokens")) {
    for (const JsonNode& token : node->elements()) parts.added_tokens.push_back(read_added_token(token));
  }
  return parts;
}

}  // namespace minisgl
