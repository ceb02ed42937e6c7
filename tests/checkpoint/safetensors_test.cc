#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "checkpoint/checkpoint.h"
#include "checkpoint/expect_error.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_path.h"
#include "checkpoint/writers.h"

namespace minisgl {
namespace {

using nlohmann::json;
using test::bytes_of;
using test::expect_error;
using test::SafetensorsWriter;
using test::write_file;

class SafetensorsTest : public testing::Test {
 protected:
  std::unique_ptr<Checkpoint> open(const std::string& bytes) {
    write_file(folder_ / "model.safetensors", bytes);
    return open_checkpoint({ModelFormat::kHuggingFaceFolder, folder_.path(), ""});
  }
  std::unique_ptr<Checkpoint> open(const SafetensorsWriter& writer) { return open(writer.bytes()); }
  void expect_bad(const std::string& bytes, std::vector<std::string> parts) {
    parts.push_back("model.safetensors");
    expect_error(ErrorKind::kBadModel, parts, [&] { open(bytes); });
  }
  void expect_bad_folder(ErrorKind kind, const std::vector<std::string>& parts) {
    expect_error(kind, parts, [&] { open_safetensors_checkpoint(folder_.path()); });
  }

  test::TemporaryFolder folder_;
};

SafetensorsWriter two_tensors() {
  SafetensorsWriter writer;
  writer.add("a", {3, 2}, {1, 2, 3, 4, 5, 6});
  writer.add("b", "BF16", {4}, bytes_of(std::vector<uint16_t>{0x3f80, 0x4000, 0x4040, 0x4080}));
  return writer;
}

TEST_F(SafetensorsTest, RowsAreConverted) {
  SafetensorsWriter writer = two_tensors();
  writer.add("h", "F16", {1, 1, 2}, bytes_of(std::vector<uint16_t>{0x3c00, 0xc000}));
  writer.add("s", "F32", {}, bytes_of(2.5f));
  writer.header["__metadata__"] = {{"format", "pt"}};
  const auto checkpoint = open(writer);
  EXPECT_EQ(checkpoint->names(), (std::vector<std::string_view>{"a", "b", "h", "s"}));
  EXPECT_EQ(checkpoint->total_bytes(), 24u + 8u + 4u + 4u);
  EXPECT_EQ(checkpoint->info("a").shape, (Shape{3, 2}));
  EXPECT_EQ(checkpoint->info("b").stored_type, "BF16");

  float out[8] = {};
  checkpoint->read_rows("a", 1, 2, DType::kFloat32, out);
  EXPECT_EQ(std::vector<float>(out, out + 4), (std::vector<float>{3, 4, 5, 6}));
  checkpoint->read_rows("b", 2, 2, DType::kFloat32, out);
  EXPECT_EQ(std::vector<float>(out, out + 2), (std::vector<float>{3, 4}));
  checkpoint->read_rows("h", 0, 1, DType::kFloat32, out);
  EXPECT_EQ(std::vector<float>(out, out + 2), (std::vector<float>{1, -2}));
  checkpoint->read_rows("s", 0, 1, DType::kFloat32, out);
  EXPECT_EQ(out[0], 2.5f);
  BFloat16 narrow[2];
  checkpoint->read_rows("a", 2, 1, DType::kBFloat16, narrow);
  EXPECT_EQ(static_cast<float>(narrow[1]), 6.0f);
  checkpoint->read_rows("a", 3, 0, DType::kFloat32, nullptr);
}

TEST_F(SafetensorsTest, LongConversionsMatchElementByElement) {
  std::vector<float> values(5000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f + static_cast<float>(i) / 4096.0f;
  const auto checkpoint = open(SafetensorsWriter().add("v", {5, 1000}, values));
  std::vector<BFloat16> out(5000);
  checkpoint->read_rows("v", 0, 5, DType::kBFloat16, out.data());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(out[i].bits, BFloat16(values[i]).bits) << i;
}

TEST_F(SafetensorsTest, RowsOutsideTheTensorAreRefused) {
  const auto checkpoint = open(two_tensors());
  float out[8];
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{-1, 1}, {0, -1}, {0, 4}, {4, 0}, {1, INT64_MAX}, {INT64_MAX, INT64_MAX}}) {
    expect_error(ErrorKind::kBadModel, {"tensor a", "has 3"},
                 [&, begin = begin, count = count] { checkpoint->read_rows("a", begin, count, DType::kFloat32, out); });
  }
  expect_error(ErrorKind::kBadModel, {"tensor c is missing"}, [&] { checkpoint->read_rows("c", 0, 1, DType::kFloat32, out); });
}

TEST_F(SafetensorsTest, AccountIsKeptOfWhatIsUsed) {
  const auto checkpoint = open(two_tensors().add("c", {1}, {0.0f}));
  EXPECT_EQ(checkpoint->unused().size(), 3u);
  EXPECT_EQ(checkpoint->claim("a", {3, 2}).name, "a");
  checkpoint->mark_used("c");
  checkpoint->mark_used("not there");
  EXPECT_EQ(checkpoint->unused(), std::vector<std::string_view>{"b"});
  expect_error(ErrorKind::kBadModel, {"tensor b has shape [4]", "[2, 2]"}, [&] { checkpoint->claim("b", {2, 2}); });
  expect_error(ErrorKind::kBadModel, {folder_.path().string(), "tensor d is missing"}, [&] { checkpoint->claim("d", {1}); });
  EXPECT_EQ(checkpoint->unused(), std::vector<std::string_view>{"b"});
}

TEST_F(SafetensorsTest, FixtureModelsOpen) {
  const std::filesystem::path models = std::filesystem::path(MINISGL_TEST_DATA) / "models";
  int opened = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    const auto checkpoint = open_safetensors_checkpoint(entry.path());
    EXPECT_EQ(checkpoint->info("model.norm.weight").stored_type, "BF16") << entry.path();
    int64_t elements = 0;
    for (const std::string_view name : checkpoint->names()) elements += checkpoint->info(name).shape.elements();
    EXPECT_EQ(load_model_config(entry.path()).parameter_count(), elements) << entry.path();
    ++opened;
  }
  EXPECT_EQ(opened, 10);
}

TEST_F(SafetensorsTest, EveryTruncationIsOneClearError) {
  const std::string whole = two_tensors().bytes();
  EXPECT_NO_THROW(open(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    expect_bad(whole.substr(0, size), {});
    if (HasFailure()) FAIL() << "cut at byte " << size;
  }
}

TEST_F(SafetensorsTest, EveryDamagedByteIsReadOrRefused) {
  const std::string whole = two_tensors().bytes();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char damage : {'\x00', '9', '-', '"', '\xff'}) {
      std::string damaged = whole;
      damaged[at] = damage;
      try {
        const auto checkpoint = open(damaged);
        for (const std::string_view name : checkpoint->names()) {
          const Shape& shape = checkpoint->info(name).shape;
          std::vector<float> out(static_cast<size_t>(shape.elements()));
          checkpoint->read_rows(name, 0, shape.rank() == 0 ? 1 : shape[0], DType::kFloat32, out.data());
        }
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::kInternal) << "byte " << at << ": " << error.what();
        EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
      }
    }
  }
}

TEST_F(SafetensorsTest, HeadersAreChecked) {
  expect_bad("", {"no safetensors file"});
  expect_bad(bytes_of(~uint64_t{0}) + "{}", {"18446744073709551615 bytes"});
  expect_bad(bytes_of(uint64_t{40} << 20), {"41943040 bytes", "at most"});
  expect_bad(bytes_of(uint64_t{1} << 20) + "{}", {"cut off", "1048576"});
  expect_bad(SafetensorsWriter().with_header("not json"), {"header", "not valid JSON"});
  expect_bad(SafetensorsWriter().with_header("[]"), {"JSON object"});
  expect_bad(SafetensorsWriter().with_header(std::string(1000, '[')), {"nested"});
  expect_bad(SafetensorsWriter().with_header(R"({"a":{},"a":{}})"), {"\"a\" appears twice"});
  expect_bad(SafetensorsWriter().with_header(R"({"a":1})"), {"tensor a", "JSON object", "1"});
  expect_bad(SafetensorsWriter().with_header(R"({"a\nb":{}})"), {"control characters"});
  expect_bad("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 988097824\n", {"Git LFS pointer", "git lfs pull"});
}

TEST_F(SafetensorsTest, EntriesAreChecked) {
  const auto expect = [&](const char* field, const json& value, const std::vector<std::string>& parts) {
    SafetensorsWriter writer = two_tensors();
    writer.header["a"][field] = value;
    expect_bad(writer.bytes(), parts);
  };
  expect("dtype", "F31", {"tensor a: dtype is \"F31\""});
  expect("dtype", nullptr, {"tensor a: dtype is missing"});
  expect("dtype", "F16", {"tensor a", "[0,24]", "needs 12 bytes"});
  expect("shape", {3, 1}, {"tensor a", "[0,24]", "shape [3, 1] of F32 needs 12 bytes"});
  expect("shape", {3, -2}, {"tensor a: shape is [3,-2]"});
  expect("shape", {3, 2.5}, {"tensor a: shape"});
  expect("shape", {0, 2}, {"tensor a: shape", "empty"});
  expect("shape", {1, 1, 1, 3, 2}, {"tensor a: shape", "0 to 4"});
  expect("shape", "x", {"tensor a: shape is \"x\""});
  expect("shape", {uint64_t{1} << 32, uint64_t{1} << 32}, {"tensor a: shape"});
  expect("shape", {30, 30}, {"tensor a: shape", "cut off"});
  expect("data_offsets", {0, 25}, {"tensor a", "needs 24 bytes"});
  expect("data_offsets", {24, 0}, {"tensor a", "before the start"});
  expect("data_offsets", {100, 124}, {"tensor a: data_offsets", "outside the 32 bytes", "cut off"});
  expect("data_offsets", {~uint64_t{0}, ~uint64_t{0}}, {"tensor a: data_offsets"});
  expect("data_offsets", {0}, {"tensor a: data_offsets is [0]"});
  expect("data_offsets", nullptr, {"tensor a: data_offsets is missing"});
  expect("data_offsets", {4, 28}, {"tensors a and b overlap"});
}

TEST_F(SafetensorsTest, UnreadableTypesAreRefusedWhenTheyAreRead) {
  const auto checkpoint = open(SafetensorsWriter().add("ids", "I64", {2}, std::string(16, 'x')).add("w", "F8_E4M3", {4}, "abcd"));
  float out[4];
  expect_error(ErrorKind::kNotSupported, {"tensor ids", "I64"}, [&] { checkpoint->read_rows("ids", 0, 1, DType::kFloat32, out); });
  expect_error(ErrorKind::kNotSupported, {"tensor w", "F8_E4M3", "BF16"}, [&] { checkpoint->read_rows("w", 0, 1, DType::kFloat32, out); });
}

class ShardedTest : public SafetensorsTest {
 protected:
  void write_index(const json& weight_map) {
    write_file(folder_ / "model.safetensors.index.json", json{{"weight_map", weight_map}}.dump());
  }
  void write_shard(const std::string& name, const SafetensorsWriter& writer) { write_file(folder_ / name, writer.bytes()); }
};

TEST_F(ShardedTest, ShardsAreOneCheckpoint) {
  write_index({{"a", "1.safetensors"}, {"b", "1.safetensors"}, {"c", "2.safetensors"}});
  write_shard("1.safetensors", two_tensors());
  write_shard("2.safetensors", SafetensorsWriter().add("c", {2}, {7, 8}));
  const auto checkpoint = open_safetensors_checkpoint(folder_.path());
  EXPECT_EQ(checkpoint->names(), (std::vector<std::string_view>{"a", "b", "c"}));
  float out[2];
  checkpoint->read_rows("c", 0, 2, DType::kFloat32, out);
  EXPECT_EQ(out[1], 8.0f);
  checkpoint->read_rows("a", 0, 1, DType::kFloat32, out);
  EXPECT_EQ(out[1], 2.0f);
}

TEST_F(ShardedTest, IncompleteSetsAreRefused) {
  write_index({{"a", "1.safetensors"}, {"c", "2.safetensors"}});
  write_shard("1.safetensors", two_tensors());
  expect_bad_folder(ErrorKind::kBadModel, {"2.safetensors is missing", "index.json", "incomplete"});
  write_shard("2.safetensors", SafetensorsWriter().add("d", {1}, {1.0f}));
  expect_bad_folder(ErrorKind::kBadModel, {"index.json", "weight_map.c", "no shard holds"});
  write_shard("2.safetensors", two_tensors());
  expect_bad_folder(ErrorKind::kBadModel, {"tensor a appears twice"});
}

TEST_F(ShardedTest, IndexesAreChecked) {
  for (const json& name : {json("../1.safetensors"), json("/etc/passwd"), json(""), json(".."), json(3), json(nullptr)}) {
    write_index({{"a", name}});
    expect_bad_folder(ErrorKind::kBadModel, {"index.json", "weight_map.a"});
  }
  write_file(folder_ / "model.safetensors.index.json", "{");
  expect_bad_folder(ErrorKind::kBadModel, {"index.json", "not valid JSON"});
  write_file(folder_ / "model.safetensors.index.json", "{}");
  expect_bad_folder(ErrorKind::kBadModel, {"index.json", "weight_map is missing"});
}

TEST_F(SafetensorsTest, FoldersWithoutSafetensorsSayWhatTheyHold) {
  expect_bad_folder(ErrorKind::kBadModel, {"model.safetensors", "it is empty"});
  write_file(folder_ / "config.json", "{}");
  expect_bad_folder(ErrorKind::kBadModel, {"it holds config.json"});
  write_file(folder_ / "pytorch_model.bin", "x");
  expect_bad_folder(ErrorKind::kNotSupported, {"pytorch_model.bin", "model.safetensors"});
  std::filesystem::remove(folder_ / "pytorch_model.bin");
  write_file(folder_ / "m.gguf", "x");
  expect_bad_folder(ErrorKind::kBadModel, {"m.gguf", "pass"});
  std::filesystem::create_symlink("gone", folder_ / "model.safetensors");
  expect_bad_folder(ErrorKind::kNotFound, {"model.safetensors", "No such file"});
}

TEST(Checkpoint, AShapeHasNoWeights) {
  expect_error(ErrorKind::kUsage, {"shape:qwen3-8b", "without weights"}, [] { open_checkpoint({ModelFormat::kShape, "", "qwen3-8b"}); });
}

}  // namespace
}  // namespace minisgl
