#include "model/weights.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "model/weight_pieces.h"

namespace minisgl {

namespace {

bool matches(std::string_view name, std::string_view pattern) {
  return pattern.starts_with('*') ? name.ends_with(pattern.substr(1)) : name == pattern;
}

/// Collects what a check found; one line names the first and counts the rest.
class Findings {
 public:
  void add(std::string message) {
    if (count_++ == 0) first_ = std::move(message);
  }
  void fail_if_any(const Checkpoint& checkpoint, const char* of_what) const {
    if (count_ == 0) return;
    const std::string more = count_ == 1 ? "" : fmt::format(" (and {} more {})", count_ - 1, of_what);
    fail(ErrorKind::kBadModel, "{}: {}{}", checkpoint.source(), first_, more);
  }

 private:
  std::string first_;
  int64_t count_ = 0;
};

void claim_all(const WeightTable& table, Checkpoint& checkpoint) {
  Findings missing;
  Findings misshapen;
  for (const WeightSlot& slot : table.slots()) {
    if (!checkpoint.contains(slot.name)) {
      missing.add(fmt::format("tensor {} {} is missing", slot.name, slot.shape.to_string()));
    } else if (const Shape& found = checkpoint.info(slot.name).shape; found != slot.shape) {
      misshapen.add(
          fmt::format("tensor {} has shape {}, the configuration asks for {}", slot.name, found.to_string(), slot.shape.to_string()));
    }
  }
  missing.fail_if_any(checkpoint, "missing");
  misshapen.fail_if_any(checkpoint, "with a wrong shape");

  for (const WeightSlot& slot : table.slots()) checkpoint.claim(slot.name, slot.shape);
  Findings left_over;
  for (const std::string_view name : checkpoint.unused()) {
    const auto& ignored = table.ignored();
    if (std::any_of(ignored.begin(), ignored.end(), [&](const std::string& pattern) { return matches(name, pattern); })) {
      checkpoint.mark_used(name);
    } else {
      left_over.add(fmt::format("tensor {} {} has no place in this model", name, checkpoint.info(name).shape.to_string()));
    }
  }
  left_over.fail_if_any(checkpoint, "left over");
}

}  // namespace

void WeightTable::add_matrix(std::string name, LinearWeight& weight, int64_t row_begin, int64_t rows) {
  MINISGL_CHECK(row_begin >= 0 && rows > 0 && row_begin + rows <= weight.n(), "{}: rows [{}, {}) of {}", name, row_begin, row_begin + rows,
                weight.n());
  slots_.push_back({.name = std::move(name), .shape = {rows, weight.k()}, .matrix = &weight, .row_begin = row_begin, .vector = {}});
}

void WeightTable::add_norm(std::string name, const Tensor& vector) {
  slots_.push_back({.name = std::move(name), .shape = vector.shape(), .vector = vector, .dummy_value = 1});
}

void WeightTable::add_bias(std::string name, const Tensor& vector, int64_t begin, int64_t count) {
  const Tensor part = vector.rows(begin, count);
  slots_.push_back({.name = std::move(name), .shape = part.shape(), .vector = part});
}

size_t WeightTable::bytes() const {
  size_t bytes = 0;
  for (const WeightSlot& slot : slots_) {
    if (slot.matrix == nullptr) {
      bytes += static_cast<size_t>(slot.shape.elements()) * sizeof(float);
    } else if (slot.row_begin == 0) {  // once for all the slots of a merged matrix
      bytes += slot.matrix->bytes();
    }
  }
  return bytes;
}

void load_weights(const WeightTable& table, Checkpoint& checkpoint, Ops& ops, const LoadProgress& progress) {
  claim_all(table, checkpoint);
  int64_t total_bytes = 0;
  for (const WeightSlot& slot : table.slots()) total_bytes += static_cast<int64_t>(checkpoint.info(slot.name).stored_bytes);

  MatrixFiller filler(ops, process_compute_pool());
  int64_t done_bytes = 0;
  for (const WeightSlot& slot : table.slots()) {
    const auto stored_bytes = static_cast<int64_t>(checkpoint.info(slot.name).stored_bytes);
    const auto report = [&](int64_t rows_done) {
      if (progress) progress(done_bytes + stored_bytes / slot.shape[0] * rows_done, total_bytes);
    };
    if (slot.matrix == nullptr) {
      checkpoint.read_rows(slot.name, 0, slot.shape[0], DType::kFloat32, slot.vector.raw());
      report(slot.shape[0]);
    } else {
      const auto produce = [&](int64_t row_begin, const Tensor& rows) {
        checkpoint.read_rows(slot.name, row_begin, rows.size(0), rows.dtype(), rows.raw());
      };
      filler.fill(slot, produce, report);
    }
    done_bytes += stored_bytes;
  }
}

}  // namespace minisgl
