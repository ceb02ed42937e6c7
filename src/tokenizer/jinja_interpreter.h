#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_value.h"

namespace minisgl::jinja {

/// The variables of one block. Looked up from the inside out; assigned in the innermost.
class Scope final : public Object {
 public:
  Scope(Heap& heap, Ref<Scope> parent) : Object(heap), parent_(std::move(parent)) {}
  void clear() override {
    variables_.clear();
    parent_ = Ref<Scope>();
  }
  const Value* find(NameId name) const;
  void set(NameId name, Value value);

 private:
  Ref<Scope> parent_;
  std::vector<std::pair<NameId, Value>> variables_;
};

/// One rendering of a program. Throws RenderError; `line()` then says where.
class Interpreter {
 public:
  Interpreter(const Program& program, Heap& heap, const std::tm& now);

  /// Whether the template mentions a variable: others need not be set.
  bool uses(std::string_view name) const;
  void set(std::string_view name, Value value);
  std::string run();
  int line() const { return line_; }

 private:
  friend class MacroObject;
  friend class LoopObject;
  enum class Flow { kNext, kBreak, kContinue };

  Flow run_block(const Block& block);
  Flow run_statement(const Statement& statement);
  Flow run(const Text& node);
  Flow run(const Print& node);
  Flow run(const If& node);
  Flow run(const For& node);
  Flow run(const Assign& node);
  Flow run(const Capture& node);
  Flow run(const With& node);
  Flow run(const Macro& node);
  Flow run(const CallBlock& node);
  Flow run(const Scoped& node);
  Flow run(const Break&) { return Flow::kBreak; }
  Flow run(const Continue&) { return Flow::kContinue; }
  Flow run_in_new_scope(const Block& block);
  void run_loop(const For& node, const Value& iterable, int depth);
  /// The loop's items that satisfy its condition, as a sequence.
  Value loop_items(const For& node, const Value& iterable);
  std::string run_macro(const MacroDefinition& definition, const Ref<Scope>& outer, const Arguments& arguments);

  Value evaluate(const Expression& expression);
  Value evaluate(const Literal& node);
  Value evaluate(const NameLoad& node);
  Value evaluate(const SequenceLiteral& node);
  Value evaluate(const DictLiteral& node);
  Value evaluate(const AttributeLoad& node);
  Value evaluate(const Subscript& node);
  Value evaluate(const Slice& node);
  Value evaluate(const Unary& node);
  Value evaluate(const BinaryChain& node);
  Value evaluate(const Concatenation& node);
  Value evaluate(const Logical& node);
  Value evaluate(const Comparison& node);
  Value evaluate(const Conditional& node);
  Value evaluate(const Call& node);
  Value evaluate(const FilterCall& node);
  Value evaluate(const TestCall& node);
  Value evaluate_optional(const ExpressionPtr& expression) { return expression ? evaluate(*expression) : Value(); }
  Arguments evaluate_arguments(const ArgumentList& list);

  void assign(const Target& target, const Value& value);
  void write(std::string_view text);
  void enter();
  void leave() { --depth_; }

  /// Runs `body` with the output going to a text of its own, which is returned.
  template <typename Body>
  std::string capture(Body body);
  /// Makes `scope` the innermost one for as long as it lives.
  class InScope {
   public:
    InScope(Interpreter* interpreter, Ref<Scope> scope)
        : interpreter_(interpreter), outer_(std::exchange(interpreter->scope_, std::move(scope))) {}
    ~InScope() { interpreter_->scope_ = std::move(outer_); }
    InScope(const InScope&) = delete;
    InScope& operator=(const InScope&) = delete;

   private:
    Interpreter* interpreter_;
    Ref<Scope> outer_;
  };
  Ref<Scope> new_scope() { return Ref<Scope>(new Scope(heap_, scope_)); }

  const Program& program_;
  Heap& heap_;
  std::vector<std::optional<Value>> literals_;  ///< made at first use
  std::vector<std::optional<Value>> globals_;   ///< by NameId
  Ref<Scope> scope_;
  std::string* output_ = nullptr;
  size_t open_bytes_ = 0;            ///< in the output and all captures under way
  const Value* captured_ = nullptr;  ///< the input of a filter block's filters
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace minisgl::jinja
