#pragma once

#include <memory>
#include <string>

#include "tokenizer/jinja_ast.h"

namespace minisgl::jinja {

/// Parses a template. Throws Error(kBadModel) with line and construct: wrong syntax, nesting deeper than 200 levels, an unknown or
/// unsupported tag, and an unknown filter or test unless it stands in a branch that may never run (jinja2 accepts those too).
std::shared_ptr<const Program> parse(std::string source);

}  // namespace minisgl::jinja
