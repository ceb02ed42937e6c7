#include "tokenizer/text_decoder.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/utf8.h"

namespace minisgl {
namespace {

// "<0x0A>" spells the byte 0x0A.
std::optional<char> parse_byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

std::string rewrite_step(const Replacement& step, std::string_view token, bool) {
  return step.apply(token);
}

std::string rewrite_step(const TextDecoder::Strip& step, std::string_view token, bool) {
  for (int64_t i = 0; i < step.start && token.starts_with(step.character); ++i) token.remove_prefix(step.character.size());
  for (int64_t i = 0; i < step.stop && token.ends_with(step.character); ++i) token.remove_suffix(step.character.size());
  return std::string(token);
}

std::string rewrite_step(const TextDecoder::Metaspace& step, std::string_view token, bool first) {
  return Replacement{step.replacement, first && step.drop_first ? "" : " "}.apply(token);
}

template <typename Other>
std::string rewrite_step(const Other&, std::string_view token, bool) {
  return std::string(token);
}

}  // namespace

TextDecoder::TextDecoder(std::vector<Step> steps, const std::string& where) : join_with_spaces_(steps.empty()) {
  bool fused = false;
  for (Step& step : steps) {
    auto refuse = [&](const char* what, const char* after) {
      fail(ErrorKind::kNotSupported, "{}: {} after {} is not supported", where, what, after);
    };
    if (std::holds_alternative<Fuse>(step)) {
      fused = true;
    } else if (std::holds_alternative<ByteLevel>(step)) {
      if (fused) refuse("ByteLevel", "Fuse or ByteLevel");
      if (byte_fallback_) refuse("ByteLevel", "ByteFallback");
      fused = byte_level_ = true;
    } else if (std::holds_alternative<ByteFallback>(step)) {
      if (fused) refuse("ByteFallback", "Fuse or ByteLevel");
      if (byte_fallback_) refuse("ByteFallback", "ByteFallback");
      byte_fallback_ = true;
    } else if (fused) {
      if (!std::holds_alternative<Strip>(step)) refuse("Replace or Metaspace", "Fuse or ByteLevel");
      if (!text_strip_.empty()) refuse("Strip", "Strip of the fused text");
      text_strip_.push_back(std::get<Strip>(std::move(step)));
    } else {
      if (std::holds_alternative<Metaspace>(step)) {
        if (byte_fallback_) refuse("Metaspace", "ByteFallback");
        first_differs_ = true;
      }
      (byte_fallback_ ? piece_steps_ : token_steps_).push_back(std::move(step));
    }
  }
}

std::string TextDecoder::rewrite(const std::vector<Step>& steps, std::string_view token, bool first) const {
  std::string result(token);
  for (const Step& step : steps) result = std::visit([&](const auto& s) { return rewrite_step(s, result, first); }, step);
  return result;
}

void TextDecoder::add_token(int32_t id, std::string_view token) {
  entries_.resize(static_cast<size_t>(id) + 1);
  Entry entry{bytes_.size(), 0, false};
  if (token_steps_.empty() && piece_steps_.empty() && byte_level_) {
    // The whole of most tokenizers: worth not copying the token twice.
    const std::optional<std::string> spelled = byte_level_decode(token);
    bytes_ += spelled ? std::string_view(*spelled) : token;
  } else {
    std::string piece = rewrite(token_steps_, token, false);
    const std::optional<char> byte = byte_fallback_ ? parse_byte_token(piece) : std::nullopt;
    if (byte) {
      bytes_ += *byte;
      entry.is_byte = true;
    } else {
      piece = rewrite(piece_steps_, piece, false);
      if (byte_level_) piece = byte_level_decode(piece).value_or(piece);
      bytes_ += piece;
    }
  }
  entry.size_bytes = static_cast<uint32_t>(bytes_.size() - entry.begin);
  entries_[static_cast<size_t>(id)] = entry;
}

std::string_view TextDecoder::token_bytes(int32_t id) const {
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(bytes_).substr(entry.begin, entry.size_bytes);
}

// Appends a piece of the fused text, less what the strip removes.
void TextDecoder::emit(State& state, std::string_view piece, std::string& text) const {
  if (text_strip_.empty()) {
    text += piece;
    return;
  }
  const Strip& strip = text_strip_.front();
  const size_t size = strip.character.size();
  while (!state.text_begun && state.stripped < strip.start && piece.starts_with(strip.character)) {
    piece.remove_prefix(size);
    ++state.stripped;
  }
  if (piece.empty()) return;
  state.text_begun = true;
  if (strip.stop == 0) {
    text += piece;
    return;
  }
  // Of the run of strippable characters at the end, the last `stop` are held; those held before that are no longer among them go out.
  int64_t run = 0;
  while (piece.ends_with(strip.character)) {
    piece.remove_suffix(size);
    ++run;
  }
  if (!piece.empty()) {
    for (; state.held_strip > 0; --state.held_strip) text += strip.character;
    text += piece;
  }
  for (state.held_strip += run; state.held_strip > strip.stop; --state.held_strip) text += strip.character;
}

// Ends a run of byte tokens: its text if the bytes are UTF-8, else one U+FFFD for each byte.
void TextDecoder::flush_bytes(State& state, std::string& text) const {
  if (state.held.empty()) return;
  const std::string run = std::exchange(state.held, {});
  if (find_invalid_utf8(run) == std::string_view::npos) {
    emit(state, rewrite(piece_steps_, run, false), text);
  } else {
    for (size_t i = 0; i < run.size(); ++i) emit(state, rewrite(piece_steps_, kReplacementCharacter, false), text);
  }
}

void TextDecoder::push(State& state, int32_t id, std::string_view token, std::string& text) const {
  const bool first = !std::exchange(state.token_seen, true);
  const Entry& entry = entries_[static_cast<size_t>(id)];
  std::string_view piece = token_bytes(id);
  bool is_byte = entry.is_byte;
  std::string own;
  if (first && first_differs_) {
    own = rewrite(token_steps_, token, true);
    const std::optional<char> byte = byte_fallback_ ? parse_byte_token(own) : std::nullopt;
    is_byte = byte.has_value();
    if (byte) {
      own.assign(1, *byte);
    } else {
      own = rewrite(piece_steps_, own, true);
      if (byte_level_) own = byte_level_decode(own).value_or(own);
    }
    piece = own;
  }
  if (is_byte) {
    state.held += piece;
    return;
  }
  if (byte_fallback_) flush_bytes(state, text);
  if (join_with_spaces_ && !first) text += ' ';
  if (!byte_level_) {
    emit(state, piece, text);
    return;
  }
  state.held += piece;
  if (text_strip_.empty()) {
    drain_utf8(state.held, text);
  } else {
    std::string complete;
    drain_utf8(state.held, complete);
    emit(state, complete, text);
  }
}

void TextDecoder::finish(State& state, std::string& text) const {
  if (byte_fallback_) {
    flush_bytes(state, text);
  } else if (!state.held.empty()) {
    emit(state, kReplacementCharacter, text);
  }
  state = {};
}

}  // namespace minisgl
