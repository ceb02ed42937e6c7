// Kernel source: everything behind the table of kernels.h. Included once by each kernels_<isa>.cc.

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd.h"
// The order matters: later ones use earlier ones.
#include "ops/cpu/exp_kernel.inl"
//
#include "ops/cpu/activation_kernel.inl"
#include "ops/cpu/attention_kernel.inl"
#include "ops/cpu/logits_kernel.inl"
#include "ops/cpu/moe_kernel.inl"
#include "ops/cpu/norm_kernel.inl"
#include "ops/cpu/rope_kernel.inl"

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {

template <typename T>
static constexpr ActivationKernels kActivationKernels = {
    &rms_norm<T>, &add_rms_norm<T>, &rope<T>, &silu_and_mul<T>, &combine_experts<T>, {&attention<T, float>, &attention<T, uint16_t>}};

static constexpr Kernels kKernels = {
    {kActivationKernels<float>, kActivationKernels<uint16_t>}, &bf16_to_float, &float_to_bf16, &exp_row, &softmax, &log_softmax, &argmax};

const Kernels& kernels() {
  return kKernels;
}

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
