#pragma once

#include <string_view>

#include "tokenizer/jinja_value.h"

/// Python's two ways to format text.
namespace minisgl::jinja {

/// `format % arguments`: a tuple of values, one value, or a dict for `%(name)s`.
Value percent_format(Heap& heap, const Value& format, const Value& arguments);
/// `format.format(*positional, **named)`.
Value brace_format(Heap& heap, const Value& format, const Arguments& arguments);

}  // namespace minisgl::jinja
