#pragma once

#include <string>
#include <string_view>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_interpreter.h"

namespace minisgl::jinja {

/// A macro, or the body of a call block, with the scope it was defined in.
class MacroObject final : public CallableObject {
 public:
  MacroObject(Interpreter& interpreter, Heap& heap, const MacroDefinition& definition, Ref<Scope> scope)
      : CallableObject(heap), interpreter_(interpreter), definition_(definition), scope_(std::move(scope)) {}
  void clear() override { scope_ = Ref<Scope>(); }
  Value call(const Arguments& arguments) override;
  std::string repr() const override;
  bool attribute(std::string_view name, Value* result) override {
    if (name != "name") return false;
    *result = heap().string(definition_.name);
    return true;
  }

 private:
  Interpreter& interpreter_;
  const MacroDefinition& definition_;
  Ref<Scope> scope_;
};

/// The variable `loop`. Calling it renders the loop again over other items, if it is recursive.
class LoopObject final : public CallableObject {
 public:
  LoopObject(Interpreter& interpreter, Heap& heap, const For& node, Ref<Scope> scope, Value items, int depth)
      : CallableObject(heap), interpreter_(interpreter), node_(node), scope_(std::move(scope)), items_(std::move(items)), depth_(depth) {}
  void clear() override {
    scope_ = Ref<Scope>();
    items_ = Value();
    changed_.reset();
  }
  void advance() { ++index0_; }
  Value call(const Arguments& arguments) override;
  std::string repr() const override { return fmt::format("<LoopContext {}/{}>", index0_ + 1, size()); }

  bool attribute(std::string_view name, Value* result) override {
    if (name == "index") return set(result, index0_ + 1);
    if (name == "index0") return set(result, index0_);
    if (name == "first") return set(result, Value(index0_ == 0));
    if (name == "last") return set(result, Value(index0_ + 1 == size()));
    if (name == "length") return set(result, size());
    if (name == "revindex") return set(result, size() - index0_);
    if (name == "revindex0") return set(result, size() - index0_ - 1);
    if (name == "depth") return set(result, depth_ + 1);
    if (name == "depth0") return set(result, depth_);
    if (name == "previtem") return set(result, neighbour(index0_ - 1, "there is no previous item"));
    if (name == "nextitem") return set(result, neighbour(index0_ + 1, "there is no next item"));
    if (name == "cycle" || name == "changed") {
      auto method = name == "cycle" ? &LoopObject::cycle : &LoopObject::changed;
      return set(result, make_function(heap(), std::string(name), [self = Ref<LoopObject>(this), method](const Arguments& arguments) {
                   return (self.get()->*method)(arguments);
                 }));
    }
    return false;
  }

 private:
  static bool set(Value* result, Value value) {
    *result = std::move(value);
    return true;
  }
  static bool set(Value* result, int64_t value) { return set(result, Value(value)); }
  int64_t size() const { return length(items_); }
  Value neighbour(int64_t index, const char* missing) {
    if (index < 0 || index >= size()) return heap().undefined(missing);
    return items_.sequence().items[static_cast<size_t>(index)];
  }
  Value cycle(const Arguments& arguments) {
    if (arguments.positional.empty()) refuse("no items for cycling given");
    return arguments.positional[static_cast<size_t>(index0_) % arguments.positional.size()];
  }
  Value changed(const Arguments& arguments) {
    Value now = heap().tuple(arguments.positional);
    bool differs = !changed_ || !equals(*changed_, now);
    changed_ = now;
    return Value(differs);
  }

  Interpreter& interpreter_;
  const For& node_;
  Ref<Scope> scope_;
  Value items_;
  std::optional<Value> changed_;
  int64_t index0_ = 0;
  int64_t depth_;
};

}  // namespace minisgl::jinja
