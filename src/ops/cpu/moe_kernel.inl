// Kernel source: joining the outputs of a token's experts.

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {

template <typename T>
static void combine_experts(const float* expert_out, int64_t slice_stride, int64_t slices, const float* weights, int64_t slots, int64_t n,
                            void* out_raw) {
  T* out = static_cast<T*>(out_raw);
  for (int64_t i = 0; i < n; i += kWidth) {
    V part[kMaxSlices];
    for (int64_t s = 0; s < slices; ++s) {
      const float* slot = expert_out + s * slice_stride + i;
      V sum = mul(broadcast(weights[0]), read(slot, n - i));
      for (int64_t j = 1; j < slots; ++j) sum = add(sum, mul(broadcast(weights[j]), read(slot + j * n, n - i)));
      part[s] = sum;
    }
    // The tree of Ops::sum_slices: neighbours are added level by level, an odd one out is carried up.
    for (int64_t count = slices; count > 1; count = (count + 1) / 2) {
      for (int64_t s = 0; s < count / 2; ++s) part[s] = add(part[2 * s], part[2 * s + 1]);
      if (count % 2 != 0) part[count / 2] = part[count - 1];
    }
    write(out + i, part[0], n - i);
  }
}

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
