#include "ops/cpu/cpu_probe_kernel.inl"
