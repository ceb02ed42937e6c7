#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "attention/attention_backend.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "distributed/communicator.h"
#include "model/forward_batch.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace minisgl {

/// The decoder-only transformer behind every architecture: embedding, `num_layers` of {RMSNorm, attention, RMSNorm, MLP or experts} with
/// residuals, final RMSNorm, head. Switched by ModelConfig alone. Activations are float32 on the CPU, weights and KV `dtype`.
class Decoder {
 public:
  /// Most rows of one head().
  static constexpr int64_t kMaxLogitRows = 256;

  /// Allocates weights (empty) in `dtype`, float32 or bfloat16, and the activations of `max_tokens` tokens in one step; on the CPU memory
  /// becomes resident where it is first touched. `max_positions` sizes the RoPE table: every position must be below it. One rank only.
  Decoder(const ModelConfig& config, DType dtype, int64_t max_tokens, int64_t max_positions, Ops& ops, Communicator& communicator);
  ~Decoder();

  /// Fills the weights from a checkpoint. Strict: each expected tensor present with its shape, nothing left over; throws Error(kBadModel)
  /// that names the tensor before any is read. Left over may be only `*.rotary_emb.inv_freq` and, with tied embeddings, `lm_head.weight`.
  void load(Checkpoint& checkpoint, const LoadProgress& progress);
  /// N(0, 0.02) from seed 0, norms 1, biases 0: see fill_dummy_weights().
  void load_dummy(const LoadProgress& progress);

  /// Runs all layers over a batch of 1 to max_tokens tokens. Stores their keys and values in `kv`, which has one entry per layer. Returns
  /// the normalised hidden states [tokens, hidden], valid until the next call. Allocates nothing.
  Tensor forward(const ForwardBatch& batch, AttentionBackend& attention, std::span<const KvLayer> kv);
  /// logits [rows, vocab] float32 of the hidden states in `rows` [rows] int32 (flat token indices of the last forward), 1 to kMaxLogitRows.
  void head(const Tensor& rows, const Tensor& logits);

  const ModelConfig& config() const;
  /// Bytes of weights in memory, the padding of packed matrices included, tied embeddings counted once.
  size_t weight_bytes() const;
  /// Bytes of activations and tables, touched or not.
  size_t workspace_bytes() const;

  /// Bytes that the weights of `config` in `dtype` take without padding: the memory plan before anything is allocated.
  static size_t weight_bytes(const ModelConfig& config, DType dtype);
  /// What workspace_bytes() will be.
  static size_t workspace_bytes(const ModelConfig& config, DType dtype, int64_t max_tokens, int64_t max_positions, Device device);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
