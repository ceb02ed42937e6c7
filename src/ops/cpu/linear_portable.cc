#include "ops/cpu/linear_kernel.inl"
