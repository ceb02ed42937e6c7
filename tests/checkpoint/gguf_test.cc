#include "checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/checkpoint.h"
#include "checkpoint/expect_error.h"
#include "checkpoint/gguf_blocks.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_path.h"
#include "checkpoint/writers.h"

namespace minisgl {
namespace {

using test::bytes_of;
using test::expect_error;
using test::GgufWriter;

std::vector<float> counting(size_t count, float first = 0) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

/// One layer, hidden size 8, two heads of 4, one key-value head, vocabulary of 3.
GgufWriter tiny_llama() {
  GgufWriter writer;
  writer.set("general.architecture", "llama")
      .set("llama.block_count", uint32_t{1})
      .set("llama.context_length", uint32_t{64})
      .set("llama.embedding_length", uint32_t{8})
      .set("llama.feed_forward_length", uint32_t{16})
      .set("llama.attention.head_count", uint32_t{2})
      .set("llama.attention.head_count_kv", uint32_t{1})
      .set("llama.attention.layer_norm_rms_epsilon", 0.5f)
      .set("llama.rope.freq_base", 5000.0f)
      .set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "<|im_end|>", "<|endoftext|>"})
      .set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 3, 3})
      .set("tokenizer.ggml.eos_token_id", uint32_t{1})
      .set("tokenizer.ggml.bos_token_id", uint32_t{0})
      .add("token_embd.weight", {3, 8}, counting(24))
      .add("blk.0.attn_q.weight", {8, 8}, counting(64))
      .add("blk.0.attn_k.weight", {4, 8}, counting(32))
      .add("blk.0.attn_v.weight", {4, 8}, counting(32))
      .add("output_norm.weight", {8}, counting(8));
  return writer;
}

class GgufTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& bytes) {
    test::write_file(folder_ / "model.gguf", bytes);
    return folder_ / "model.gguf";
  }
  std::filesystem::path write(const GgufWriter& writer) { return write(writer.bytes()); }
  void expect_bad(const GgufWriter& writer, const std::vector<std::string>& parts, ErrorKind kind = ErrorKind::kBadModel) {
    const std::filesystem::path path = write(writer);
    expect_error(kind, parts, [&] { GgufFile{path}; });
  }

  test::TemporaryFolder folder_;
};

TEST_F(GgufTest, ReadsEveryKindOfMetadata) {
  GgufWriter writer;
  writer.set("u32", uint32_t{7})
      .set("f32", 0.25f)
      .set("yes", true)
      .set("text", "h\xc3\xa4llo")
      .set("strings", std::vector<std::string>{"", "b", "cc"})
      .set("ints", std::vector<int32_t>{-1, 2})
      .set("floats", std::vector<float>{1.5f})
      .raw("u8", GgufWriter::kUInt8, bytes_of(uint8_t{200}))
      .raw("i8", GgufWriter::kInt8, bytes_of(int8_t{-5}))
      .raw("i64", GgufWriter::kInt64, bytes_of(int64_t{-6}))
      .raw("u64", GgufWriter::kUInt64, bytes_of(uint64_t{9}))
      .raw("big", GgufWriter::kUInt64, bytes_of(std::numeric_limits<uint64_t>::max()))
      .raw("f64", GgufWriter::kFloat64, bytes_of(0.125))
      .raw("nested", GgufWriter::kArray,
           bytes_of(uint32_t{GgufWriter::kArray}) + bytes_of(uint64_t{1}) + bytes_of(uint32_t{GgufWriter::kUInt8}) + bytes_of(uint64_t{2}) +
               "xy");
  const GgufFile file(write(writer));
  EXPECT_EQ(file.integer("u32"), 7);
  EXPECT_EQ(file.number("u32"), 7.0);
  EXPECT_EQ(file.number("f32"), 0.25);
  EXPECT_EQ(file.number("f64"), 0.125);
  EXPECT_EQ(file.boolean("yes"), true);
  EXPECT_EQ(file.string("text"), "h\xc3\xa4llo");
  EXPECT_EQ(file.strings("strings"), (std::vector<std::string>{"", "b", "cc"}));
  EXPECT_EQ(file.integers("ints"), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(file.floats("floats"), std::vector<float>{1.5f});
  EXPECT_EQ(file.integer("u8"), 200);
  EXPECT_EQ(file.integer("i8"), -5);
  EXPECT_EQ(file.integer("i64"), -6);
  EXPECT_EQ(file.integer("u64"), 9);
  EXPECT_EQ(file.array_size("nested"), 1u);
  EXPECT_EQ(file.integer("absent"), std::nullopt);
  EXPECT_EQ(file.strings("absent"), std::nullopt);
  EXPECT_EQ(file.keys().size(), 14u);
  expect_error(ErrorKind::kBadModel, {"text", "an integer", "string"}, [&] { file.integer("text"); });
  expect_error(ErrorKind::kBadModel, {"u32", "a string", "uint32"}, [&] { file.string("u32"); });
  expect_error(ErrorKind::kBadModel, {"ints", "array of strings", "int32"}, [&] { file.strings("ints"); });
  expect_error(ErrorKind::kBadModel, {"big", "out of range"}, [&] { file.integer("big"); });
  expect_error(ErrorKind::kBadModel, {"u8", "an array"}, [&] { file.integers("u8"); });
}

TEST_F(GgufTest, EveryTruncationIsOneClearError) {
  GgufWriter writer = tiny_llama();
  writer.raw("nested", GgufWriter::kArray,
             bytes_of(uint32_t{GgufWriter::kArray}) + bytes_of(uint64_t{1}) + bytes_of(uint32_t{GgufWriter::kUInt8}) +
                 bytes_of(uint64_t{2}) + "xy");
  const std::string whole = writer.bytes();
  EXPECT_NO_THROW(GgufFile{write(whole)});
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::filesystem::path path = write(whole.substr(0, size));
    expect_error(ErrorKind::kBadModel, {"model.gguf"}, [&] { GgufFile{path}; });
    if (HasFailure()) FAIL() << "cut at byte " << size;
  }
}

TEST_F(GgufTest, EveryDamagedByteIsReadOrRefused) {
  const std::string whole = tiny_llama().bytes();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char damage : {'\x00', '\x7f', '\xff'}) {
      std::string damaged = whole;
      damaged[at] = damage;
      const std::filesystem::path path = write(damaged);
      try {
        load_model_config(GgufFile(path));
        const std::unique_ptr<Checkpoint> checkpoint = open_gguf_checkpoint(path);
        std::vector<float> out;
        for (const std::string_view name : checkpoint->names()) {
          const Shape& shape = checkpoint->info(name).shape;
          out.resize(static_cast<size_t>(shape.elements()));
          checkpoint->read_rows(name, 0, shape[0], DType::kFloat32, out.data());
        }
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::kInternal) << "byte " << at << ": " << error.what();
      }
    }
  }
}

TEST_F(GgufTest, AbsurdCountsAreRefusedBeforeAnythingIsAllocated) {
  GgufWriter writer = tiny_llama();
  writer.tensor_count = uint64_t{1} << 60;
  expect_bad(writer, {"1152921504606846976 tensors do not fit"});
  writer = tiny_llama();
  writer.key_count = std::numeric_limits<uint64_t>::max();
  expect_bad(writer, {"18446744073709551615 metadata entries do not fit"});
  writer = tiny_llama();
  ++writer.key_count;
  expect_bad(writer, {});
  for (const uint32_t type : {GgufWriter::kUInt8, GgufWriter::kFloat64, GgufWriter::kString, GgufWriter::kArray}) {
    writer = tiny_llama();
    writer.raw("list", GgufWriter::kArray, bytes_of(type) + bytes_of(std::numeric_limits<uint64_t>::max() / 2));
    expect_bad(writer, {"metadata key list", "9223372036854775807 elements", "do not fit"});
  }
  writer = tiny_llama();
  writer.raw("text", GgufWriter::kString, bytes_of(std::numeric_limits<uint64_t>::max()));
  expect_bad(writer, {"string value", "18446744073709551615 bytes"});
}

TEST_F(GgufTest, DeepNestingIsRefused) {
  std::string payload;
  for (int depth = 0; depth < 1000; ++depth) payload += bytes_of(uint32_t{GgufWriter::kArray}) + bytes_of(uint64_t{1});
  expect_bad(tiny_llama().raw("deep", GgufWriter::kArray, payload), {"metadata key deep", "nested more than 4"});
}

TEST_F(GgufTest, HeadersOfOtherKindsAreNamed) {
  GgufWriter writer;
  writer.magic = "GGML";
  expect_bad(writer, {"not a GGUF file"});
  writer = {};
  writer.version = 1;
  expect_bad(writer, {"GGUF version 1"}, ErrorKind::kNotSupported);
  writer.version = 0x03000000;
  expect_bad(writer, {"big-endian"}, ErrorKind::kNotSupported);
  const auto path = write("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 98362432\n");
  expect_error(ErrorKind::kBadModel, {"model.gguf", "Git LFS pointer"}, [&] { GgufFile{path}; });
  expect_bad(GgufWriter().raw("k", 13, ""), {});
  expect_bad(GgufWriter().raw("k", 13, "12345678"), {"metadata key k", "unknown value type 13"});
  expect_bad(GgufWriter().set("k", true).set("k", false), {"metadata key k appears twice"});
  expect_bad(GgufWriter().set("a\nb", true), {"control characters"});
  expect_bad(GgufWriter().set("general.alignment", uint32_t{0}), {"general.alignment is 0", "power of two"});
  expect_bad(GgufWriter().set("general.alignment", uint32_t{24}), {"general.alignment is 24"});
  expect_bad(GgufWriter().set("general.alignment", "x"), {"general.alignment", "an integer"});
}

TEST_F(GgufTest, TensorDirectoryIsChecked) {
  const std::string data = bytes_of(counting(32));
  expect_bad(GgufWriter().add("t", 0, {32}, data).add("t", 0, {32}, data), {"tensor t appears twice"});
  expect_bad(GgufWriter().add("t", 0, {32}, data).add_at("u", 0, {32}, 64, data), {"tensors t and u overlap"});
  expect_bad(GgufWriter().add_at("t", 0, {32}, 1 << 20, data), {"tensor t", "outside the file"});
  expect_bad(GgufWriter().add_at("t", 0, {32}, ~uint64_t{31}, data), {"tensor t", "outside the file"});
  expect_bad(GgufWriter().add_at("t", 0, {32}, 1, data), {"tensor t", "alignment 32"});
  expect_bad(GgufWriter().add("t", 0, {33}, data), {"cut off", "tensor t needs"});
  expect_bad(GgufWriter().add("t", 0, {0, 4}, data), {"tensor t", "dimension 0"});
  expect_bad(GgufWriter().add("t", 0, {uint64_t{1} << 32, uint64_t{1} << 32}, data), {"tensor t", "dimension 4294967296"});
  expect_bad(GgufWriter().add("t", 0, {}, data), {"tensor t has rank 0"});
  expect_bad(GgufWriter().add("t", 0, {1, 1, 1, 1, 1}, data), {"tensor t has rank 5"});
  expect_bad(GgufWriter().add("t", 8, {2, 31}, data), {"tensor t", "rows of 31", "Q8_0"});
  const auto path = write(GgufWriter().add("t", 12, {1, 256}, std::string(144, 'x')));
  expect_error(ErrorKind::kNotSupported, {"tensor t", "Q4_K", "type 12", "Q4_1"}, [&] { open_gguf_checkpoint(path); });
}

TEST_F(GgufTest, BlocksExpandAsTheFormatDefines) {
  // Scales as binary16: 0x3800 is 0.5, 0xbc00 is -1, 0x0001 is 2^-24.
  std::string q8(34, '\0');
  q8[0] = '\x00', q8[1] = '\x38';
  q8[2] = 3, q8[3] = -128, q8[33] = 127;
  std::string q4(20, '\0');
  q4[0] = '\x00', q4[1] = '\x38', q4[2] = '\x00', q4[3] = '\xbc';
  q4[4] = '\xf1', q4[19] = '\x2f';
  const auto path = write(GgufWriter()
                              .add("q8", 8, {2, 32}, q8 + q8)
                              .add("q4", 3, {1, 32}, q4)
                              .add("f16", 1, {4}, bytes_of(std::vector<uint16_t>{0x3c00, 0x0001, 0xfc00, 0x8000}))
                              .add("bf16", 30, {2}, bytes_of(std::vector<uint16_t>{0x3f80, 0xc040})));
  const auto checkpoint = open_gguf_checkpoint(path);
  EXPECT_EQ(checkpoint->total_bytes(), 68u + 20u + 8u + 4u);
  std::vector<float> out(64);
  checkpoint->read_rows("q8", 0, 2, DType::kFloat32, out.data());
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], -64.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[31], 63.5f);
  EXPECT_EQ(out[32], 1.5f);
  checkpoint->read_rows("q4", 0, 1, DType::kFloat32, out.data());
  EXPECT_EQ(out[0], 1 * 0.5f - 1);
  EXPECT_EQ(out[16], 15 * 0.5f - 1);
  EXPECT_EQ(out[15], 15 * 0.5f - 1);
  EXPECT_EQ(out[31], 2 * 0.5f - 1);
  EXPECT_EQ(out[1], -1.0f);
  checkpoint->read_rows("f16", 0, 4, DType::kFloat32, out.data());
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 0x1p-24f);
  EXPECT_EQ(out[2], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::signbit(out[3]));
  checkpoint->read_rows("bf16", 1, 1, DType::kFloat32, out.data());
  EXPECT_EQ(out[0], -3.0f);
  std::vector<BFloat16> narrow(32);
  checkpoint->read_rows("q8", 1, 1, DType::kBFloat16, narrow.data());
  EXPECT_EQ(narrow[31].bits, BFloat16(63.5f).bits);
  checkpoint->read_rows("bf16", 0, 2, DType::kBFloat16, narrow.data());
  EXPECT_EQ(narrow[1].bits, 0xc040);
}

TEST_F(GgufTest, LlamaHeadsComeInHuggingFacesOrder) {
  const auto checkpoint = open_gguf_checkpoint(write(tiny_llama()));
  // Row 2 i + t of a head of the file is row 2 t + i here (a head of 4 has halves of 2).
  const int64_t expected[8] = {0, 2, 1, 3, 4, 6, 5, 7};
  std::vector<float> out(64);
  checkpoint->read_rows("model.layers.0.self_attn.q_proj.weight", 0, 8, DType::kFloat32, out.data());
  for (size_t row = 0; row < 8; ++row) EXPECT_EQ(out[row * 8 + 3], static_cast<float>(expected[row] * 8 + 3)) << row;
  checkpoint->read_rows("model.layers.0.self_attn.q_proj.weight", 5, 2, DType::kFloat32, out.data());
  EXPECT_EQ(out[0], 6 * 8.0f);
  EXPECT_EQ(out[8], 5 * 8.0f);
  checkpoint->read_rows("model.layers.0.self_attn.k_proj.weight", 1, 1, DType::kFloat32, out.data());
  EXPECT_EQ(out[0], 2 * 8.0f);
  checkpoint->read_rows("model.layers.0.self_attn.v_proj.weight", 1, 1, DType::kFloat32, out.data());
  EXPECT_EQ(out[0], 8.0f);
}

TEST_F(GgufTest, QwenHeadsKeepTheirOrderAndNamesAreTranslated) {
  GgufWriter writer;
  writer.set("general.architecture", "qwen3");
  const std::pair<const char*, const char*> names[] = {
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"output.weight", "lm_head.weight"},
      {"output_norm.weight", "model.norm.weight"},
      {"blk.12.attn_norm.weight", "model.layers.12.input_layernorm.weight"},
      {"blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight"},
      {"blk.12.attn_q.bias", "model.layers.12.self_attn.q_proj.bias"},
      {"blk.12.attn_k.weight", "model.layers.12.self_attn.k_proj.weight"},
      {"blk.12.attn_v.weight", "model.layers.12.self_attn.v_proj.weight"},
      {"blk.12.attn_output.weight", "model.layers.12.self_attn.o_proj.weight"},
      {"blk.12.attn_q_norm.weight", "model.layers.12.self_attn.q_norm.weight"},
      {"blk.12.attn_k_norm.weight", "model.layers.12.self_attn.k_norm.weight"},
      {"blk.12.ffn_norm.weight", "model.layers.12.post_attention_layernorm.weight"},
      {"blk.12.ffn_gate.weight", "model.layers.12.mlp.gate_proj.weight"},
      {"blk.12.ffn_up.weight", "model.layers.12.mlp.up_proj.weight"},
      {"blk.12.ffn_down.weight", "model.layers.12.mlp.down_proj.weight"},
      {"blk.012.ffn_down.weight", "blk.012.ffn_down.weight"},
      {"blk.x.ffn_down.weight", "blk.x.ffn_down.weight"},
      {"rope_freqs.weight", "rope_freqs.weight"},
  };
  for (const auto& [gguf, unused] : names) writer.add(gguf, {8}, counting(8));
  const auto checkpoint = open_gguf_checkpoint(write(writer));
  for (const auto& [unused, name] : names) EXPECT_TRUE(checkpoint->contains(name)) << name;
  std::vector<float> out(8);
  checkpoint->read_rows("model.layers.12.self_attn.q_proj.weight", 0, 8, DType::kFloat32, out.data());
  EXPECT_EQ(out, counting(8));
}

TEST_F(GgufTest, ConfigurationComesFromTheMetadata) {
  const ModelConfig config = load_model_config(GgufFile(write(tiny_llama())));
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.num_layers, 1);
  EXPECT_EQ(config.hidden_size, 8);
  EXPECT_EQ(config.num_heads, 2);
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.intermediate_size, 16);
  EXPECT_EQ(config.vocab_size, 3);
  EXPECT_EQ(config.max_position_embeddings, 64);
  EXPECT_EQ(config.rms_norm_eps, 0.5);
  EXPECT_EQ(config.rope, (RopeConfig{.theta = 5000.0}));
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.dtype, DType::kFloat32);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(config.bos_token_id, 0);
}

TEST_F(GgufTest, BadConfigurationsNameTheKey) {
  const auto expect = [&](GgufWriter writer, ErrorKind kind, const std::vector<std::string>& parts) {
    const GgufFile file(write(writer));
    expect_error(kind, parts, [&] { load_model_config(file); });
  };
  expect(GgufWriter(), ErrorKind::kBadModel, {"general.architecture is missing"});
  expect(GgufWriter().set("general.architecture", "gemma3"), ErrorKind::kNotSupported, {"\"gemma3\"", "llama, qwen2, qwen3"});
  expect(GgufWriter().set("general.architecture", "llama"), ErrorKind::kBadModel, {"llama.block_count is missing"});
  expect(GgufWriter().set("general.architecture", "llama").set("llama.block_count", uint32_t{4000000000}), ErrorKind::kBadModel,
         {"llama.block_count is 4000000000", "from 1 to 1024"});
  expect(tiny_llama().set("llama.expert_count", uint32_t{8}), ErrorKind::kNotSupported, {"llama.expert_count is 8"});
  expect(tiny_llama().set("llama.rope.scaling.type", "longrope"), ErrorKind::kNotSupported, {"longrope", "none, linear, yarn"});
  expect(tiny_llama().set("llama.rope.scaling.type", "linear").set("llama.rope.scaling.factor", std::nanf("")), ErrorKind::kBadModel,
         {"llama.rope.scaling.factor is nan"});
  expect(tiny_llama().set("llama.attention.key_length", uint32_t{7}), ErrorKind::kBadModel, {"head_dim is 7"});
  expect(tiny_llama().set("llama.rope.dimension_count", uint32_t{2}), ErrorKind::kNotSupported, {"llama.rope.dimension_count is 2"});
  expect(tiny_llama().set("split.count", uint32_t{2}), ErrorKind::kNotSupported, {"split over 2 files"});
  expect(tiny_llama().add("rope_freqs.weight", {2}, {1, 1}), ErrorKind::kNotSupported, {"rope_freqs.weight"});
}

}  // namespace
}  // namespace minisgl
