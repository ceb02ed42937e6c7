#include "ops/cpu/kernels.inl"
