#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/utf8.h"

namespace minisgl {
namespace {

constexpr size_t kMaxTextBytes = size_t{256} << 20;
constexpr size_t kMaxFileBytes = size_t{256} << 20;

}  // namespace

Tokenizer::Impl::Impl(TokenizerParts parts, const std::string& name) : TokenizerParts(std::move(parts)) {
  const Vocabulary& vocabulary = model.vocabulary();
  std::sort(added_tokens.begin(), added_tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  normalized_contents.resize(added_tokens.size());
  for (size_t i = 0; i < added_tokens.size(); ++i) {
    const AddedToken& token = added_tokens[i];
    const int32_t model_id = vocabulary.find(token.content);
    if (model_id != Vocabulary::kNone && model_id != token.id) {
      fail(ErrorKind::kBadModel, "{}: added token '{}' has id {}, but the vocabulary gives it id {}", name, token.content, token.id,
           model_id);
    }
    if (model_id == Vocabulary::kNone && vocabulary.contains(token.id)) {
      fail(ErrorKind::kBadModel, "{}: added token '{}' has id {}, which the vocabulary gives to '{}'", name, token.content, token.id,
           vocabulary.token(token.id));
    }
    switch (added_vocabulary.add(token.content, token.id)) {
      case Vocabulary::Added::kDone:
        break;
      case Vocabulary::Added::kIdExists:
        fail(ErrorKind::kBadModel, "{}: two added tokens have id {}", name, token.id);
      case Vocabulary::Added::kTokenExists:
        fail(ErrorKind::kBadModel, "{}: added token '{}' appears twice", name, token.content);
    }
    if (token.normalized) {
      normalized_contents[i] = token.content;
      normalizer.apply(normalized_contents[i]);
      if (!normalized_contents[i].empty()) normalized_matcher.add(normalized_contents[i], token);
    } else {
      matcher.add(token.content, token);
    }
  }
  id_limit = std::max(vocabulary.id_limit(), added_vocabulary.id_limit());
  for (const std::vector<int32_t>* ids : {&prefix_ids, &suffix_ids}) {
    for (const int32_t id : *ids) {
      if (!spelling(id))
        fail(ErrorKind::kBadModel, "{}: the special token id {} that goes around a text is not in the vocabulary", name, id);
    }
  }
  for (int32_t id = 0; id < id_limit; ++id) {
    if (const auto token = decoder_spelling(id)) decoder.add_token(id, *token);
  }
}

const AddedToken* Tokenizer::Impl::added_token(int32_t id) const {
  if (!added_vocabulary.contains(id)) return nullptr;
  return &*std::lower_bound(added_tokens.begin(), added_tokens.end(), id, [](const AddedToken& token, int32_t i) { return token.id < i; });
}

std::optional<std::string_view> Tokenizer::Impl::spelling(int32_t id) const {
  if (added_vocabulary.contains(id)) return added_vocabulary.token(id);
  if (model.vocabulary().contains(id)) return model.vocabulary().token(id);
  return std::nullopt;
}

std::optional<std::string_view> Tokenizer::Impl::decoder_spelling(int32_t id) const {
  if (const AddedToken* token = added_token(id); token != nullptr && token->normalized) {
    return normalized_contents[static_cast<size_t>(token - added_tokens.data())];
  }
  return spelling(id);
}

std::vector<int32_t> Tokenizer::Impl::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes) {
    fail(ErrorKind::kInvalidRequest, "the text has {} bytes; at most {} can be tokenized at once", text.size(), kMaxTextBytes);
  }
  if (const size_t offset = find_invalid_utf8(text); offset != std::string_view::npos) {
    fail(ErrorKind::kInvalidRequest, "the text is not valid UTF-8 at byte {}", offset);
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (options.add_special_tokens) ids = prefix_ids;
  BpeModel::Scratch scratch(text.size());
  std::string normalized;
  for (const auto& part : matcher.split(text, options.parse_special)) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
      continue;
    }
    normalized.assign(text, part.begin, part.end - part.begin);
    normalizer.apply(normalized);
    for (const auto& inner : normalized_matcher.split(normalized, options.parse_special)) {
      if (inner.token != nullptr) {
        ids.push_back(inner.token->id);
      } else {
        const bool at_start = part.begin == 0 && inner.begin == 0;
        encode_words(std::string_view(normalized).substr(inner.begin, inner.end - inner.begin), at_start, scratch, ids);
      }
    }
  }
  if (options.add_special_tokens) ids.insert(ids.end(), suffix_ids.begin(), suffix_ids.end());
  return ids;
}

void Tokenizer::Impl::encode_words(std::string_view text, bool at_start, BpeModel::Scratch& scratch, std::vector<int32_t>& ids) const {
  SplitText words{std::string(text), {{0, text.size()}}, at_start};
  pre_tokenizer.apply(words);
  for (const SplitText::Part word : words.parts) model.encode(words.view(word), scratch, ids);
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Tokenizer Tokenizer::load_tokenizer_json(const std::filesystem::path& path) {
  return from_json(read_text_file(path, kMaxFileBytes), path.string());
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  return Tokenizer(std::make_shared<const Impl>(read_tokenizer_json(json, name), name));
}

Tokenizer Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  return Tokenizer(std::make_shared<const Impl>(read_gguf_vocabulary(vocabulary), "tokenizer.ggml"));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  return impl_->encode(text, options);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  Detokenizer stream(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) stream.push(id, text);
  stream.finish(text);
  return text;
}

int32_t Tokenizer::vocab_size() const {
  return impl_->id_limit;
}

std::optional<std::string_view> Tokenizer::id_to_token(int32_t id) const {
  return impl_->spelling(id);
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  for (const Vocabulary* vocabulary : {&impl_->added_vocabulary, &impl_->model.vocabulary()}) {
    if (const int32_t id = vocabulary->find(token); id != Vocabulary::kNone) return id;
  }
  return std::nullopt;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (!impl_->spelling(id)) return {};
  return impl_->decoder.token_bytes(id);
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* token = impl_->added_token(id);
  return token != nullptr && token->special;
}

std::span<const AddedToken> Tokenizer::added_tokens() const {
  return impl_->added_tokens;
}

}  // namespace minisgl
