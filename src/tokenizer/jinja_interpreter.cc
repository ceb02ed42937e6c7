#include "tokenizer/jinja_interpreter.h"

#include <algorithm>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_loop.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_print.h"

namespace minisgl::jinja {

namespace {

/// Levels of statements, expressions and macro calls under way at once; with the largest frames (sanitizers) a few megabytes of stack.
constexpr int kMaxDepth = 1000;

/// What one round of a loop costs besides its body, in evaluated nodes.
constexpr int64_t kRoundSteps = 4;

}  // namespace

const Value* Scope::find(NameId name) const {
  for (const Scope* scope = this; scope; scope = scope->parent_.get()) {
    for (const auto& [id, value] : scope->variables_) {
      if (id == name) return &value;
    }
    heap().spend(1);
  }
  return nullptr;
}

void Scope::set(NameId name, Value value) {
  for (auto& [id, old] : variables_) {
    if (id == name) {
      old = std::move(value);
      return;
    }
  }
  charge_bytes(sizeof(Value) + sizeof(NameId));
  variables_.emplace_back(name, std::move(value));
}

Value MacroObject::call(const Arguments& arguments) {
  return heap().string(interpreter_.run_macro(definition_, scope_, arguments));
}

std::string MacroObject::repr() const {
  return definition_.name.empty() ? "<Macro anonymous>" : "<Macro '" + definition_.name + "'>";
}

Value LoopObject::call(const Arguments& arguments) {
  if (!node_.recursive) refuse("the loop must have the 'recursive' marker to be called recursively");
  Bound bound("loop", arguments, {"iterable"}, 1);
  Interpreter& interpreter = interpreter_;
  return heap().string(interpreter.capture([&] {
    Interpreter::InScope outer(&interpreter, scope_);
    interpreter.run_loop(node_, bound[0], static_cast<int>(depth_) + 1);
  }));
}

Interpreter::Interpreter(const Program& program, Heap& heap, const std::tm& now)
    : program_(program), heap_(heap), literals_(program.literals.size()), scope_(new Scope(heap, Ref<Scope>())) {
  for (const std::string& name : program.names) globals_.push_back(find_global(heap, name, now));
}

bool Interpreter::uses(std::string_view name) const {
  return std::find(program_.names.begin(), program_.names.end(), name) != program_.names.end();
}

void Interpreter::set(std::string_view name, Value value) {
  auto found = std::find(program_.names.begin(), program_.names.end(), name);
  if (found != program_.names.end()) scope_->set(static_cast<NameId>(found - program_.names.begin()), std::move(value));
}

std::string Interpreter::run() {
  return capture([&] { run_block(program_.body); });
}

void Interpreter::enter() {
  heap_.spend(1);
  if (++depth_ > kMaxDepth) refuse("statements, expressions and macro calls are nested deeper than {} levels", kMaxDepth);
}

void Interpreter::write(std::string_view text) {
  heap_.check_bytes(open_bytes_ + text.size());
  heap_.spend_bytes(text.size());
  open_bytes_ += text.size();
  output_->append(text);
}

template <typename Body>
std::string Interpreter::capture(Body body) {
  std::string text;
  std::string* outer = std::exchange(output_, &text);
  body();
  output_ = outer;
  open_bytes_ -= text.size();
  return text;
}

// ------------------------------------------------------------------------------------------------------------- statements

Interpreter::Flow Interpreter::run_block(const Block& block) {
  for (const auto& statement : block) {
    if (Flow flow = run_statement(*statement); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement) {
  enter();
  int outer = std::exchange(line_, statement.line);
  Flow flow = std::visit([this](const auto& node) { return run(node); }, statement.node);
  line_ = outer;
  leave();
  return flow;
}

Interpreter::Flow Interpreter::run(const Text& node) {
  write(node.text);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Print& node) {
  Value value = evaluate(*node.value);
  if (value.is_string()) {
    write(value.text());
  } else {
    write(to_text(heap_, value));
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    if (truth(evaluate(*condition))) return run_block(body);
  }
  return run_block(node.otherwise);
}

Interpreter::Flow Interpreter::run_in_new_scope(const Block& block) {
  InScope inner(this, new_scope());
  return run_block(block);
}

Interpreter::Flow Interpreter::run(const Scoped& node) {
  return run_in_new_scope(node.body);
}

Interpreter::Flow Interpreter::run(const For& node) {
  run_loop(node, evaluate(*node.iterable), 0);
  return Flow::kNext;
}

Value Interpreter::loop_items(const For& node, const Value& iterable) {
  if (!node.condition) return iterable.is_sequence() ? iterable : heap_.list(iterate(iterable));
  std::vector<Value> kept;
  InScope inner(this, new_scope());
  for (const Value& item : iterate(iterable)) {
    assign(node.target, item);
    if (truth(evaluate(*node.condition))) kept.push_back(item);
  }
  return heap_.list(std::move(kept));
}

void Interpreter::run_loop(const For& node, const Value& iterable, int depth) {
  Value items = loop_items(node, iterable);
  Ref<LoopObject> loop(new LoopObject(*this, heap_, node, scope_, items, depth));
  // The else block runs unless some round came to the end of the body, as in jinja2: one left by `continue` does not count.
  bool completed = false;
  for (const Value& item : items.sequence().items) {
    heap_.spend(kRoundSteps);
    InScope round(this, new_scope());
    scope_->set(program_.loop, Value(Kind::kLoop, loop.get()));
    assign(node.target, item);
    Flow flow = run_block(node.body);
    if (flow == Flow::kNext) completed = true;
    if (flow == Flow::kBreak) break;
    loop->advance();
  }
  if (!completed && !node.otherwise.empty()) run_in_new_scope(node.otherwise);
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.unpacks) {
    heap_.spend(1);
    std::vector<Value> parts = iterate(value);
    if (parts.size() < target.elements.size()) {
      refuse("not enough values to unpack (expected {}, got {})", target.elements.size(), parts.size());
    }
    if (parts.size() > target.elements.size()) refuse("too many values to unpack (expected {})", target.elements.size());
    for (size_t i = 0; i < parts.size(); ++i) assign(target.elements[i], parts[i]);
    return;
  }
  if (target.attribute.empty()) return scope_->set(target.name, value);
  const Value* object = scope_->find(target.name);
  if (!object || !object->is(Kind::kNamespace)) refuse("cannot assign attribute on non-namespace object");
  if (target.attribute.starts_with('_')) refuse("a namespace cannot hold the attribute '{}' with an underscore", target.attribute);
  Value holder = *object;
  holder.name_space().attributes->set(heap_.string(target.attribute), value);
}

Interpreter::Flow Interpreter::run(const Assign& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Capture& node) {
  Flow flow = Flow::kNext;
  Value text = heap_.string(capture([&] { flow = run_in_new_scope(node.body); }));
  if (flow != Flow::kNext) return flow;
  if (node.filter) {
    const Value* outer = std::exchange(captured_, &text);
    Value filtered = evaluate(*node.filter);
    captured_ = outer;
    text = std::move(filtered);
  }
  if (node.target) {
    assign(*node.target, text);
  } else {
    write(to_text(heap_, text));
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const With& node) {
  Ref<Scope> inner = new_scope();
  for (const auto& [target, expression] : node.bindings) {
    Value value = evaluate(*expression);
    InScope binding(this, inner);
    assign(target, value);
  }
  InScope body(this, inner);
  return run_block(node.body);
}

Interpreter::Flow Interpreter::run(const Macro& node) {
  scope_->set(node.name, Value(Kind::kCallable, new MacroObject(*this, heap_, node.definition, scope_)));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const CallBlock& node) {
  const auto& call = std::get<Call>(node.call->node);
  Value callee = evaluate(*call.callee);
  Arguments arguments = evaluate_arguments(call.arguments);
  arguments.named.emplace_back("caller", Value(Kind::kCallable, new MacroObject(*this, heap_, node.caller, scope_)));
  write(to_text(heap_, call_value(callee, arguments)));
  return Flow::kNext;
}

std::string Interpreter::run_macro(const MacroDefinition& definition, const Ref<Scope>& outer, const Arguments& arguments) {
  enter();
  Ref<Scope> scope(new Scope(heap_, outer));
  size_t count = definition.parameters.size();
  std::vector<std::optional<Value>> values(count);
  for (size_t i = 0; i < std::min(count, arguments.positional.size()); ++i) values[i] = arguments.positional[i];
  std::optional<Value> caller;
  std::vector<std::pair<Value, Value>> rest;
  for (const auto& [name, value] : arguments.named) {
    auto found = std::find(definition.parameter_names.begin(), definition.parameter_names.end(), name);
    auto index = static_cast<size_t>(found - definition.parameter_names.begin());
    if (index < count && !values[index]) {
      values[index] = value;
    } else if (name == "caller" && definition.takes_caller) {
      caller = value;
    } else if (definition.takes_kwargs) {
      rest.emplace_back(heap_.string(name), value);
    } else {
      refuse("macro '{}' takes no keyword argument '{}'", definition.name, name);
    }
  }
  if (arguments.positional.size() > count && !definition.takes_varargs) {
    refuse("macro '{}' takes not more than {} argument(s)", definition.name, count);
  }
  if (definition.takes_caller) {
    scope->set(program_.caller, caller ? *caller : heap_.undefined("No caller defined"));
  }
  if (definition.takes_kwargs) scope->set(program_.kwargs, make_dict(heap_, std::move(rest)));
  if (definition.takes_varargs) {
    auto first = arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, arguments.positional.size()));
    scope->set(program_.varargs, heap_.tuple({first, arguments.positional.end()}));
  }
  std::string text = capture([&] {
    InScope inner(this, scope);
    for (size_t i = 0; i < count; ++i) {
      const auto& [name, otherwise] = definition.parameters[i];
      if (!values[i]) {
        values[i] = otherwise ? evaluate(*otherwise)
                              : heap_.undefined(fmt::format("parameter '{}' was not provided", definition.parameter_names[i]));
      }
      scope->set(name, *values[i]);
    }
    run_block(definition.body);
  });
  leave();
  return text;
}

// ------------------------------------------------------------------------------------------------------------ expressions

Value Interpreter::evaluate(const Expression& expression) {
  enter();
  int outer = std::exchange(line_, expression.line);
  Value value = std::visit([this](const auto& node) { return evaluate(node); }, expression.node);
  line_ = outer;
  leave();
  return value;
}

Value Interpreter::evaluate(const Literal& node) {
  std::optional<Value>& value = literals_[node.index];
  if (!value) {
    struct Maker {
      Heap& heap;
      Value operator()(std::monostate) { return Value(); }
      Value operator()(bool boolean) { return Value(boolean); }
      Value operator()(int64_t integer) { return Value(integer); }
      Value operator()(double real) { return Value(real); }
      Value operator()(const std::string& text) { return heap.string(text); }
    };
    value = std::visit(Maker{heap_}, program_.literals[node.index]);
  }
  return *value;
}

Value Interpreter::evaluate(const NameLoad& node) {
  if (const Value* found = scope_->find(node.name)) return *found;
  if (const auto& global = globals_[node.name]) return *global;
  return heap_.undefined_name(program_.names[node.name]);
}

Value Interpreter::evaluate(const SequenceLiteral& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const auto& item : node.items) items.push_back(evaluate(*item));
  return node.tuple ? heap_.tuple(std::move(items)) : heap_.list(std::move(items));
}

Value Interpreter::evaluate(const DictLiteral& node) {
  std::vector<std::pair<Value, Value>> entries;
  entries.reserve(node.entries.size());
  for (const auto& [key, value] : node.entries) {
    Value name = evaluate(*key);
    entries.emplace_back(std::move(name), evaluate(*value));
  }
  return make_dict(heap_, std::move(entries));
}

Value Interpreter::evaluate(const AttributeLoad& node) {
  return get_attribute(heap_, evaluate(*node.base), node.name);
}

Value Interpreter::evaluate(const Subscript& node) {
  Value base = evaluate(*node.base);
  return get_item(heap_, base, evaluate(*node.index));
}

Value Interpreter::evaluate(const Slice& node) {
  Value base = evaluate(*node.base);
  Value start = evaluate_optional(node.start);
  Value stop = evaluate_optional(node.stop);
  return get_slice(heap_, base, start, stop, evaluate_optional(node.step));
}

Value Interpreter::evaluate(const Unary& node) {
  return apply_unary(node.operation, evaluate(*node.operand));
}

Value Interpreter::evaluate(const BinaryChain& node) {
  Value left = evaluate(*node.first);
  for (const auto& [operation, operand] : node.rest) left = apply_binary(heap_, operation, left, evaluate(*operand));
  return left;
}

Value Interpreter::evaluate(const Concatenation& node) {
  std::string text;
  for (const auto& part : node.parts) {
    Value value = evaluate(*part);
    text += value.is_string() ? value.text() : to_text(heap_, value);
    heap_.check_bytes(text.size());
  }
  return heap_.string(std::move(text));
}

Value Interpreter::evaluate(const Logical& node) {
  Value value;
  for (const auto& operand : node.operands) {
    value = evaluate(*operand);
    if (truth(value) != node.is_and) break;
  }
  return value;
}

Value Interpreter::evaluate(const Comparison& node) {
  Value left = evaluate(*node.first);
  for (const auto& [operation, operand] : node.rest) {
    Value right = evaluate(*operand);
    if (!apply_comparison(operation, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::evaluate(const Conditional& node) {
  if (truth(evaluate(*node.condition))) return evaluate(*node.value);
  if (node.otherwise) return evaluate(*node.otherwise);
  return heap_.undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Arguments Interpreter::evaluate_arguments(const ArgumentList& list) {
  Arguments arguments;
  for (const auto& argument : list.positional) arguments.positional.push_back(evaluate(*argument));
  if (list.star) {
    for (Value& item : iterate(evaluate(*list.star))) arguments.positional.push_back(std::move(item));
  }
  for (const auto& [name, argument] : list.named) arguments.named.emplace_back(name, evaluate(*argument));
  if (list.double_star) {
    Value named = evaluate(*list.double_star);
    require_defined(named);
    if (!named.is(Kind::kDict)) refuse("argument after ** must be a mapping, not {}", type_name(named));
    for (const auto& [name, value] : named.dict().entries) {
      if (!name.is_string()) refuse("keywords must be strings");
      heap_.spend(1 + static_cast<int64_t>(arguments.named.size()) / 16);
      bool repeated =
          std::any_of(arguments.named.begin(), arguments.named.end(), [&](const auto& other) { return other.first == name.text(); });
      if (repeated) refuse("got multiple values for keyword argument '{}'", name.text());
      arguments.named.emplace_back(name.text(), value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate(const Call& node) {
  Value callee = evaluate(*node.callee);
  return call_value(callee, evaluate_arguments(node.arguments));
}

Value Interpreter::evaluate(const FilterCall& node) {
  if (!node.filter) refuse("unknown filter '{}'", node.name);
  Value input = node.input ? evaluate(*node.input) : *captured_;
  return node.filter(heap_, input, evaluate_arguments(node.arguments));
}

Value Interpreter::evaluate(const TestCall& node) {
  if (!node.test) refuse("unknown test '{}'", node.name);
  Value input = evaluate(*node.input);
  return Value(node.test(heap_, input, evaluate_arguments(node.arguments)));
}

}  // namespace minisgl::jinja
