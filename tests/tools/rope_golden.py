#!/usr/bin/env python3
"""Prints the golden values of tests/model/rope_test.cc: inverse frequencies and table entries in float32.

A second, independent statement of the formulas of Hugging Face's modeling_rope_utils.py (transformers 5), step by step in numpy float32.
Needs numpy only:  python3 tests/tools/rope_golden.py
"""

import math

import numpy as np

F = np.float32


def periods(theta, dim):
    return (F(theta) ** (np.arange(0, dim, 2, dtype=F) / F(dim))).astype(F)


def default(theta, dim):
    return F(1) / periods(theta, dim)


def linear(theta, dim, factor):
    return default(theta, dim) / F(factor)


def llama3(theta, dim, factor, low, high, context):
    inv = default(theta, dim)
    wavelength = F(2 * math.pi) / inv
    scaled = np.where(wavelength > F(context / low), inv / F(factor), inv)
    smooth = (F(context) / wavelength - F(low)) / F(high - low)
    blended = (F(1) - smooth) * scaled / F(factor) + smooth * scaled
    medium = ~(wavelength < F(context / high)) & ~(wavelength > F(context / low))
    return np.where(medium, blended, scaled).astype(F)


def yarn(theta, dim, factor, context, beta_fast=32, beta_slow=1, truncate=True):
    def dimension(rotations):
        return dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(beta_fast), dimension(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(dim // 2, dtype=F) - F(low)) / F(high - low), F(0), F(1)).astype(F)
    keep = F(1) - ramp
    p = periods(theta, dim)
    return (F(1) / (F(factor) * p) * (F(1) - keep) + F(1) / p * keep).astype(F)


def show(name, inv, scale=1.0, position=1000):
    angle = F(position) * inv
    cos = np.cos(angle.astype(np.float64)).astype(F) * F(scale)
    sin = np.sin(angle.astype(np.float64)).astype(F) * F(scale)
    picks = [0, 1, len(inv) // 3, len(inv) // 2, 2 * len(inv) // 3, len(inv) - 1]
    print(f"// {name}: pairs {picks}; inverse frequency, then cosine and sine at position {position}")
    for i in picks:
        print(f"    {{{i}, {inv[i]:.9g}f, {cos[i]:.9g}f, {sin[i]:.9g}f}},")


if __name__ == "__main__":
    show("default, theta 1e6, dim 128", default(1e6, 128))
    show("linear, theta 1e4, dim 64, factor 2.5", linear(1e4, 64, 2.5))
    show("llama3, theta 5e5, dim 128, factor 8, 1, 4, 8192", llama3(5e5, 128, 8, 1, 4, 8192))
    show("yarn, theta 1e6, dim 128, factor 4, 32768", yarn(1e6, 128, 4, 32768), 0.1 * math.log(4) + 1)
    show("yarn, theta 1e4, dim 64, factor 16, 4096, not truncated", yarn(1e4, 64, 16, 4096, 32, 1, False), 0.1 * math.log(16) + 1)
