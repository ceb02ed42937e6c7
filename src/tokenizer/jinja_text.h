#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Python's text operations on UTF-8: what counts as white space, the case mappings, how text and numbers are printed. Input is valid
/// UTF-8 (checked where text enters); indexes are bytes unless they say code points.
namespace minisgl::jinja::text {

/// Code points in `text`.
size_t length(std::string_view text);
/// Bytes of the character that starts at `offset`; never past the end.
size_t sequence_bytes(std::string_view text, size_t offset);
/// The code point that starts at `offset`.
char32_t code_point_at(std::string_view text, size_t offset);
void append_utf8(std::string* out, char32_t code_point);
bool is_valid_utf8(std::string_view text);

/// str.isspace() of one code point.
bool is_space(char32_t code_point);
/// Whether repr() prints it as it is.
bool is_printable(char32_t code_point);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
/// str.title(): a letter after a non-letter in title case, the others in lower case.
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);

/// Removes characters of `characters` (white space if null) from the ends.
std::string_view strip(std::string_view text, const std::string_view* characters, bool left, bool right);
/// str.split / str.rsplit by white space; `limit` < 0: no limit.
std::vector<std::string_view> split_space(std::string_view text, int64_t limit, bool from_right);
/// str.split / str.rsplit by a separator that is not empty.
std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t limit, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// Replaces the first `limit` occurrences (all if < 0); the size of the result must have been checked with count().
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit);
/// Occurrences without overlap; an empty needle occurs between all characters.
size_t count(std::string_view text, std::string_view needle);

/// repr() of a text, in quotes.
std::string quote(std::string_view text);
/// repr() of a float.
std::string print_float(double value);
/// `&`, `<`, `>`, `'` and `"` as HTML entities.
std::string escape_html(std::string_view text);

}  // namespace minisgl::jinja::text
