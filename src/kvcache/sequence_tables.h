#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace minisgl {

/// An int32 matrix with one line per row (running request) and a last line for padding. Device state: only the executor that owns it
/// reads or writes it, as plans say. Resident only where it was written.
class SequenceTable {
 public:
  SequenceTable(int64_t rows, int64_t width, Device device) : rows_(rows), table_(DType::kInt32, {rows + 1, width}, device) {}

  int64_t rows() const { return rows_; }
  int64_t width() const { return table_.view().size(1); }
  int32_t dummy_row() const { return static_cast<int32_t>(rows_); }
  size_t bytes() const { return table_.bytes(); }

  int32_t* data() const { return table_.view().data<int32_t>(); }
  /// The line of `row`. Host memory only.
  int32_t* row(int32_t row) const { return data() + row * width(); }

 private:
  int64_t rows_;
  OwnedTensor table_;
};

/// [rows + 1][pages of a longest sequence]: the page that holds positions [i * page_size, (i + 1) * page_size) of the row's sequence.
class PageTable : public SequenceTable {
 public:
  /// Every entry of the padding line is `dummy_page`.
  PageTable(int64_t rows, int64_t max_pages, int32_t dummy_page, Device device) : SequenceTable(rows, max_pages, device) {
    int32_t* line = row(dummy_row());
    for (int64_t i = 0; i < max_pages; ++i) line[i] = dummy_page;
  }
};

/// [rows + 1][max_model_len]: each row's whole sequence, prompt and output. The source of input ids and of penalties.
using TokenPool = SequenceTable;

}  // namespace minisgl
