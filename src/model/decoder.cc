#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/layers.h"
#include "model/rope.h"
#include "moe/moe_layer.h"

namespace minisgl {

namespace {

MoeShape moe_shape(const ModelConfig& config) {
  return {.hidden_size = config.hidden_size,
          .intermediate_size = config.moe.moe_intermediate_size,
          .num_experts = config.moe.num_experts,
          .experts_per_token = config.moe.experts_per_token,
          .normalize_weights = config.moe.norm_topk_prob};
}

int64_t query_width(const ModelConfig& config) {
  return config.num_heads * config.head_dim;
}
int64_t kv_width(const ModelConfig& config) {
  return config.num_kv_heads * config.head_dim;
}
int64_t qkv_width(const ModelConfig& config) {
  return query_width(config) + 2 * kv_width(config);
}

bool has_dense_layers(const ModelConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(), [](const LayerConfig& layer) { return !layer.sparse; });
}

/// Columns of the widest intermediate results: qkv or gate_up, and what the next matrix reads of them.
int64_t wide_width(const ModelConfig& config) {
  return std::max(qkv_width(config), has_dense_layers(config) ? 2 * config.intermediate_size : 0);
}
int64_t narrow_width(const ModelConfig& config) {
  return std::max(query_width(config), has_dense_layers(config) ? config.intermediate_size : 0);
}

DType activation_dtype(DType dtype, Device device) {
  return device.kind == DeviceKind::kCpu ? DType::kFloat32 : dtype;
}

/// What a layer is built from.
struct Context {
  const ModelConfig& config;
  DType dtype;
  int64_t max_tokens;
  Ops& ops;
  Communicator& communicator;
};

/// Activations of a step, allocated once for max_tokens. On the CPU memory becomes resident only where a step touches it.
struct Workspace {
  Tensor residual;  ///< [tokens, hidden] the stream that every block adds to
  Tensor hidden;    ///< [tokens, hidden] what goes into a block and comes out of it
  Tensor wide;      ///< [tokens, *] qkv, then gate_up
  Tensor narrow;    ///< [tokens, *] the heads' outputs, then the activated gate
};

/// The step's inputs as a layer sees them.
struct StepInputs {
  const Tensor& positions;
  const Tensor& rope_table;
  AttentionBackend& attention;
};

/// The beginning of `buffer` as a contiguous [tokens, columns].
Tensor reshape_prefix(const Tensor& buffer, int64_t tokens, int64_t columns) {
  return Tensor(buffer.raw(), buffer.dtype(), {tokens, columns}, buffer.device());
}

// --- the blocks of a layer -------------------------------------------------------------------------------------------------------------

class Attention {
 public:
  Attention(const Context& context, int64_t sliding_window)
      : heads_(context.config.num_heads),
        kv_heads_(context.config.num_kv_heads),
        head_dim_(context.config.head_dim),
        ops_(context.ops),
        qkv_(context.ops, qkv_width(context.config), context.config.hidden_size, context.config.attention_bias, context.dtype),
        o_(context.ops, context.communicator, context.config.hidden_size, query_width(context.config), context.config.attention_output_bias,
           context.dtype, context.max_tokens) {
    params_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim_)));
    params_.sliding_window = sliding_window;
    if (context.config.qk_norm) {
      q_norm_.emplace(context.ops, head_dim_, context.config.rms_norm_eps);
      k_norm_.emplace(context.ops, head_dim_, context.config.rms_norm_eps);
    }
  }

  /// work.hidden = attention(work.hidden).
  void forward(const StepInputs& inputs, const KvLayer& kv, const Workspace& work) const {
    const int64_t tokens = work.hidden.size(0);
    const Tensor qkv = reshape_prefix(work.wide, tokens, (heads_ + 2 * kv_heads_) * head_dim_);
    const Tensor q = qkv.columns(0, heads_ * head_dim_).split_heads(heads_, head_dim_);
    const Tensor k = qkv.columns(heads_ * head_dim_, kv_heads_ * head_dim_).split_heads(kv_heads_, head_dim_);
    const Tensor v = qkv.columns((heads_ + kv_heads_) * head_dim_, kv_heads_ * head_dim_).split_heads(kv_heads_, head_dim_);
    const Tensor heads_out = reshape_prefix(work.narrow, tokens, heads_ * head_dim_);

    qkv_.forward(work.hidden, qkv);
    if (q_norm_) {
      q_norm_->forward_heads(q);
      k_norm_->forward_heads(k);
    }
    ops_.rope(q, inputs.positions, inputs.rope_table);
    ops_.rope(k, inputs.positions, inputs.rope_table);
    inputs.attention.forward(q, k, v, kv, params_, heads_out);
    o_.forward(heads_out, work.hidden);
  }

  void declare(WeightTable& table, const std::string& prefix) {
    const int64_t q_rows = heads_ * head_dim_;
    const int64_t kv_rows = kv_heads_ * head_dim_;
    table.add_matrix(prefix + "q_proj.weight", qkv_.weight(), 0, q_rows);
    table.add_matrix(prefix + "k_proj.weight", qkv_.weight(), q_rows, kv_rows);
    table.add_matrix(prefix + "v_proj.weight", qkv_.weight(), q_rows + kv_rows, kv_rows);
    table.add_matrix(prefix + "o_proj.weight", o_.weight());
    if (!qkv_.bias().empty()) {
      table.add_bias(prefix + "q_proj.bias", qkv_.bias(), 0, q_rows);
      table.add_bias(prefix + "k_proj.bias", qkv_.bias(), q_rows, kv_rows);
      table.add_bias(prefix + "v_proj.bias", qkv_.bias(), q_rows + kv_rows, kv_rows);
    }
    if (!o_.bias().empty()) table.add_bias(prefix + "o_proj.bias", o_.bias(), 0, o_.bias().size(0));
    if (q_norm_) {
      table.add_norm(prefix + "q_norm.weight", q_norm_->weight());
      table.add_norm(prefix + "k_norm.weight", k_norm_->weight());
    }
  }

 private:
  int64_t heads_;
  int64_t kv_heads_;
  int64_t head_dim_;
  AttentionParams params_;
  Ops& ops_;
  ColumnParallelLinear qkv_;
  RowParallelLinear o_;
  std::optional<RmsNorm> q_norm_;
  std::optional<RmsNorm> k_norm_;
};

/// SwiGLU (arXiv 2002.05202): down(silu(gate(x)) * up(x)).
class Mlp {
 public:
  explicit Mlp(const Context& context)
      : intermediate_(context.config.intermediate_size),
        ops_(context.ops),
        gate_up_(context.ops, 2 * intermediate_, context.config.hidden_size, context.config.mlp_bias, context.dtype),
        down_(context.ops, context.communicator, context.config.hidden_size, intermediate_, context.config.mlp_bias, context.dtype,
              context.max_tokens) {}

  /// work.hidden = mlp(work.hidden).
  void forward(const Workspace& work) const {
    const int64_t tokens = work.hidden.size(0);
    const Tensor gate_up = reshape_prefix(work.wide, tokens, 2 * intermediate_);
    const Tensor activated = reshape_prefix(work.narrow, tokens, intermediate_);
    gate_up_.forward(work.hidden, gate_up);
    ops_.silu_and_mul(gate_up, activated);
    down_.forward(activated, work.hidden);
  }

  void declare(WeightTable& table, const std::string& prefix) {
    table.add_matrix(prefix + "gate_proj.weight", gate_up_.weight(), 0, intermediate_);
    table.add_matrix(prefix + "up_proj.weight", gate_up_.weight(), intermediate_, intermediate_);
    table.add_matrix(prefix + "down_proj.weight", down_.weight());
    if (!gate_up_.bias().empty()) {
      table.add_bias(prefix + "gate_proj.bias", gate_up_.bias(), 0, intermediate_);
      table.add_bias(prefix + "up_proj.bias", gate_up_.bias(), intermediate_, intermediate_);
      table.add_bias(prefix + "down_proj.bias", down_.bias(), 0, down_.bias().size(0));
    }
  }

 private:
  int64_t intermediate_;
  Ops& ops_;
  ColumnParallelLinear gate_up_;
  RowParallelLinear down_;
};

/// Mixtral names its experts' matrices after the paper's figure, Qwen after what they do.
void declare_experts(WeightTable& table, const std::string& prefix, const ModelConfig& config, MoeLayer& moe) {
  const bool mixtral = config.architecture == "MixtralForCausalLM";
  const std::string block = prefix + (mixtral ? "block_sparse_moe." : "mlp.");
  const int64_t intermediate = config.moe.moe_intermediate_size;
  table.add_matrix(block + "gate.weight", moe.router());
  for (int64_t e = 0; e < config.moe.num_experts; ++e) {
    const std::string expert = block + "experts." + std::to_string(e);
    table.add_matrix(expert + (mixtral ? ".w1.weight" : ".gate_proj.weight"), moe.gate_up(e), 0, intermediate);
    table.add_matrix(expert + (mixtral ? ".w3.weight" : ".up_proj.weight"), moe.gate_up(e), intermediate, intermediate);
    table.add_matrix(expert + (mixtral ? ".w2.weight" : ".down_proj.weight"), moe.down(e));
  }
}

struct DecoderLayer {
  DecoderLayer(const Context& context, const LayerConfig& layer)
      : input_norm(context.ops, context.config.hidden_size, context.config.rms_norm_eps),
        attention(context, layer.sliding_window),
        post_attention_norm(context.ops, context.config.hidden_size, context.config.rms_norm_eps) {
    if (layer.sparse) {
      moe.emplace(context.ops, context.communicator, moe_shape(context.config), context.dtype);
    } else {
      mlp.emplace(context);
    }
  }

  void declare(WeightTable& table, const std::string& prefix, const ModelConfig& config) {
    table.add_norm(prefix + "input_layernorm.weight", input_norm.weight());
    attention.declare(table, prefix + "self_attn.");
    table.add_norm(prefix + "post_attention_layernorm.weight", post_attention_norm.weight());
    if (mlp) mlp->declare(table, prefix + "mlp.");
    if (moe) declare_experts(table, prefix, config, *moe);
  }

  RmsNorm input_norm;
  Attention attention;
  RmsNorm post_attention_norm;
  std::optional<Mlp> mlp;       ///< of a dense layer
  std::optional<MoeLayer> moe;  ///< of a sparse layer
};

}  // namespace

// --- the model ---------------------------------------------------------------------------------------------------------------------------

struct Decoder::Impl {
  Impl(const Context& context, int64_t max_positions)
      : config(context.config),
        max_tokens(context.max_tokens),
        ops(context.ops),
        embedding(ops.create_linear_weight(config.vocab_size, config.hidden_size, context.dtype)),
        final_norm(ops, config.hidden_size, config.rms_norm_eps),
        rope_table(config.rope, config.head_dim, max_positions) {
    layers.reserve(config.layers.size());
    for (const LayerConfig& layer : config.layers) layers.emplace_back(context, layer);
    if (!config.tie_word_embeddings) lm_head = ops.create_linear_weight(config.vocab_size, config.hidden_size, context.dtype);
    declare_weights();
    allocate_activations(context.dtype, context.communicator.size());
  }

  void declare_weights() {
    weights.add_matrix("model.embed_tokens.weight", *embedding);
    for (size_t i = 0; i < layers.size(); ++i) layers[i].declare(weights, "model.layers." + std::to_string(i) + ".", config);
    weights.add_norm("model.norm.weight", final_norm.weight());
    if (lm_head) {
      weights.add_matrix("lm_head.weight", *lm_head);
    } else {
      weights.ignore("lm_head.weight");  // some checkpoints carry the embedding a second time
    }
    weights.ignore("*.rotary_emb.inv_freq");  // early Llama checkpoints; it follows from the configuration
  }

  void allocate_activations(DType dtype, int ranks) {
    const Device device = ops.device();
    const DType activation = activation_dtype(dtype, device);
    residual = OwnedTensor(activation, {max_tokens, config.hidden_size}, device);
    hidden = OwnedTensor(activation, {max_tokens, config.hidden_size}, device);
    wide = OwnedTensor(activation, {max_tokens, wide_width(config)}, device);
    narrow = OwnedTensor(activation, {max_tokens, narrow_width(config)}, device);
    logit_inputs = OwnedTensor(activation, {Decoder::kMaxLogitRows, config.hidden_size}, device);
    if (config.has_sparse_layers()) moe_workspace.emplace(moe_shape(config), ranks, max_tokens, device);
  }

  Tensor forward(const ForwardBatch& batch, AttentionBackend& attention, std::span<const KvLayer> kv) {
    const int64_t tokens = batch.input_ids.size(0);
    MINISGL_CHECK(tokens <= max_tokens, "{} tokens, room for {}", tokens, max_tokens);
    MINISGL_CHECK(kv.size() == layers.size(), "{} KV layers, {} layers", kv.size(), layers.size());
    const Workspace work{
        .residual = residual.view().rows(0, tokens), .hidden = hidden.view().rows(0, tokens), .wide = wide.view(), .narrow = narrow.view()};
    const StepInputs inputs{.positions = batch.positions, .rope_table = rope_table.view(), .attention = attention};

    const auto* positions = batch.positions.data<int32_t>();
    rope_table.cover(*std::max_element(positions, positions + tokens));
    attention.begin_step(batch.attention, batch.slots);
    ops.embedding(*embedding, batch.input_ids, work.residual);
    for (size_t i = 0; i < layers.size(); ++i) {
      const DecoderLayer& layer = layers[i];
      // Each norm also adds the output of the block before it to the residual stream; only the first has none.
      if (i == 0) {
        layer.input_norm.forward(work.residual, work.hidden);
      } else {
        layer.input_norm.forward_add(work.hidden, work.residual, work.hidden);
      }
      layer.attention.forward(inputs, kv[i], work);
      layer.post_attention_norm.forward_add(work.hidden, work.residual, work.hidden);
      if (layer.mlp) {
        layer.mlp->forward(work);
      } else {
        layer.moe->forward(work.hidden, work.hidden, *moe_workspace);
      }
    }
    final_norm.forward_add(work.hidden, work.residual, work.hidden);
    last_hidden = work.hidden;
    return last_hidden;
  }

  void head(const Tensor& rows, const Tensor& logits) {
    const int64_t count = rows.size(0);
    MINISGL_CHECK(count <= Decoder::kMaxLogitRows, "{} logit rows, at most {}", count, Decoder::kMaxLogitRows);
    const Tensor selected = logit_inputs.view().rows(0, count);
    ops.gather_rows(last_hidden, rows, selected);
    ops.linear(selected, lm_head ? *lm_head : *embedding, {}, logits);
  }

  ModelConfig config;
  int64_t max_tokens;
  Ops& ops;

  std::unique_ptr<LinearWeight> embedding;  ///< [vocab, hidden]; the head too if tied
  std::vector<DecoderLayer> layers;
  RmsNorm final_norm;
  std::unique_ptr<LinearWeight> lm_head;
  WeightTable weights;

  RopeTable rope_table;
  OwnedTensor residual, hidden, wide, narrow, logit_inputs;
  std::optional<MoeWorkspace> moe_workspace;
  Tensor last_hidden;
};

Decoder::Decoder(const ModelConfig& config, DType dtype, int64_t max_tokens, int64_t max_positions, Ops& ops, Communicator& communicator) {
  MINISGL_CHECK(communicator.size() == 1, "{} ranks: the decoder loads whole layers", communicator.size());
  MINISGL_CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16, "weights in {}", dtype_name(dtype));
  MINISGL_CHECK(max_tokens > 0 && max_positions > 0, "{} tokens, {} positions", max_tokens, max_positions);
  impl_ = std::make_unique<Impl>(Context{config, dtype, max_tokens, ops, communicator}, max_positions);
}

Decoder::~Decoder() = default;

void Decoder::load(Checkpoint& checkpoint, const LoadProgress& progress) {
  load_weights(impl_->weights, checkpoint, impl_->ops, progress);
}

void Decoder::load_dummy(const LoadProgress& progress) {
  fill_dummy_weights(impl_->weights, impl_->ops, progress);
}

Tensor Decoder::forward(const ForwardBatch& batch, AttentionBackend& attention, std::span<const KvLayer> kv) {
  return impl_->forward(batch, attention, kv);
}

void Decoder::head(const Tensor& rows, const Tensor& logits) {
  impl_->head(rows, logits);
}

const ModelConfig& Decoder::config() const {
  return impl_->config;
}

size_t Decoder::weight_bytes() const {
  return impl_->weights.bytes();
}

size_t Decoder::workspace_bytes() const {
  return impl_->rope_table.bytes() + impl_->residual.bytes() + impl_->hidden.bytes() + impl_->wide.bytes() + impl_->narrow.bytes() +
         impl_->logit_inputs.bytes() + (impl_->moe_workspace ? impl_->moe_workspace->bytes() : 0);
}

size_t Decoder::workspace_bytes(const ModelConfig& config, DType dtype, int64_t max_tokens, int64_t max_positions, Device device) {
  const int64_t elements =
      max_tokens * (2 * config.hidden_size + wide_width(config) + narrow_width(config)) + Decoder::kMaxLogitRows * config.hidden_size;
  return static_cast<size_t>(elements) * dtype_size(activation_dtype(dtype, device)) +
         static_cast<size_t>(max_positions * config.head_dim) * sizeof(float) +
         (config.has_sparse_layers() ? MoeWorkspace::bytes(moe_shape(config), max_tokens) : 0);
}

size_t Decoder::weight_bytes(const ModelConfig& config, DType dtype) {
  const int64_t norms = 2 * config.hidden_size + (config.qk_norm ? 2 * config.head_dim : 0);
  const int64_t attention_biases =
      (config.attention_bias ? qkv_width(config) : 0) + (config.attention_output_bias ? config.hidden_size : 0);
  int64_t vectors = config.hidden_size;
  for (const LayerConfig& layer : config.layers) {
    vectors += norms + attention_biases;
    if (config.mlp_bias && !layer.sparse) vectors += 2 * config.intermediate_size + config.hidden_size;
  }
  const auto matrices = static_cast<size_t>(config.parameter_count() - vectors);
  return matrices * dtype_size(dtype) + static_cast<size_t>(vectors) * sizeof(float);
}

}  // namespace minisgl
