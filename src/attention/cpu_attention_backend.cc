#include "attention/attention_backend.h"
#include "base/error.h"

namespace minisgl {

namespace {

/// Needs no metadata of its own: the operators read the batch as it is.
class CpuAttentionBackend final : public AttentionBackend {
 public:
  explicit CpuAttentionBackend(Ops& ops) : ops_(ops) {}


  void begin_step(const AttentionBatch& batch, const Tensor& slots) override {
    batch_ = batch;
    slots_ = slots;
  }

  void forward(const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& kv, const AttentionParams& params,
               const Tensor& out) override {
    MINISGL_CHECK(q.size(0) == slots_.size(0), "{} queries, {} slots", q.size(0), slots_.size(0));
    ops_.store_kv(k, v, slots_, kv);  // first: a token sees itself
    ops_.attention(q, kv, batch_, params.scale, params.sliding_window, out);
  }

 private:
  Ops& ops_;
  AttentionBatch batch_;
  Tensor slots_;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_cpu_attention_backend(Ops& ops) {
  return std::make_unique<CpuAttentionBackend>(ops);
}

}  // namespace minisgl
