#include "checkpoint/model_path.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "checkpoint/expect_error.h"
#include "checkpoint/writers.h"

namespace minisgl {
namespace {

using test::expect_error;
using test::write_file;

/// Sets or unsets an environment variable until the end of the scope.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~ScopedEnvironment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(ModelPath, FoldersFilesAndShapesAreToldApart) {
  test::TemporaryFolder folder;
  write_file(folder / "m.gguf", "anything");
  write_file(folder / "blob", "GGUF....");
  write_file(folder / "model.safetensors", "x");
  EXPECT_EQ(resolve_model_path(folder.path().string()).format, ModelFormat::kHuggingFaceFolder);
  EXPECT_EQ(resolve_model_path(folder.path().string() + "/").format, ModelFormat::kHuggingFaceFolder);
  EXPECT_EQ(resolve_model_path((folder / "m.gguf").string()).format, ModelFormat::kGguf);
  EXPECT_EQ(resolve_model_path((folder / "blob").string()).format, ModelFormat::kGguf);
  const ModelPath shape = resolve_model_path("shape:qwen3-8b");
  EXPECT_EQ(shape.format, ModelFormat::kShape);
  EXPECT_EQ(shape.shape, "qwen3-8b");
  expect_error(ErrorKind::kNotFound, {"\"qwen3-9b\"", "qwen3-0.6b", "qwen3-8b"}, [] { resolve_model_path("shape:qwen3-9b"); });
  expect_error(ErrorKind::kUsage, {"neither a folder nor a .gguf", "pass the folder"},
               [&] { resolve_model_path((folder / "model.safetensors").string()); });
  expect_error(ErrorKind::kUsage, {"empty"}, [] { resolve_model_path(""); });
}

TEST(ModelPath, ATypoNamesWhatIsThere) {
  test::TemporaryFolder folder;
  for (const char* name : {"tiny-qwen3", "tiny-qwen2", "smollm2.gguf", "other"}) write_file(folder / name, "");
  expect_error(ErrorKind::kNotFound, {"no tiny-qwn3", "did you mean", "/tiny-qwen3 or", "/tiny-qwen2?"},
               [&] { resolve_model_path((folder / "tiny-qwn3").string()); });
  expect_error(ErrorKind::kNotFound, {"no smolm2.gguf", "did you mean", "/smollm2.gguf?"},
               [&] { resolve_model_path((folder / "smolm2.gguf").string()); });
  expect_error(ErrorKind::kNotFound, {"no xyz", "it holds other, smollm2.gguf, tiny-qwen2, tiny-qwen3"},
               [&] { resolve_model_path((folder / "xyz/deep/er/").string()); });
  expect_error(ErrorKind::kNotFound, {"other is not a folder"}, [&] { resolve_model_path((folder / "other/x").string()); });
  std::filesystem::create_symlink("nowhere", folder / "link");
  expect_error(ErrorKind::kNotFound, {"link", "No such file"}, [&] { resolve_model_path((folder / "link").string()); });
}

class HubCacheTest : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
  ScopedEnvironment hub_{"HF_HUB_CACHE", nullptr};
  ScopedEnvironment home_{"HF_HOME", nullptr};
  ScopedEnvironment xdg_{"XDG_CACHE_HOME", nullptr};
  ScopedEnvironment user_{"HOME", folder_.path().c_str()};

  void write_repository(const std::string& cache) {
    const std::string repository = cache + "/models--some-org--Some.Model/";
    write_file(folder_ / (repository + "refs/main"), "0123abc");
    write_file(folder_ / (repository + "refs/refs/pr/1"), "4567def\n");
    write_file(folder_ / (repository + "snapshots/0123abc/config.json"), "{}");
    write_file(folder_ / (repository + "snapshots/4567def/config.json"), "{}");
  }
};

TEST_F(HubCacheTest, FindsTheSnapshotOfARevision) {
  write_repository("hub");
  const ScopedEnvironment cache("HF_HUB_CACHE", (folder_ / "hub").c_str());
  const auto snapshot = [](const std::string& revision) {
    return resolve_model_path("some-org/Some.Model", revision).path.filename().string();
  };
  EXPECT_EQ(snapshot("main"), "0123abc");
  EXPECT_EQ(snapshot("refs/pr/1"), "4567def");
  EXPECT_EQ(snapshot("4567def"), "4567def");
  expect_error(ErrorKind::kNotFound, {"hf download some-org/Some.Model --revision v2"}, [&] { snapshot("v2"); });
  expect_error(ErrorKind::kUsage, {"\"../main\""}, [&] { snapshot("../main"); });
  expect_error(ErrorKind::kUsage, {"\"/etc\""}, [&] { snapshot("/etc"); });
  write_file(folder_ / "hub/models--some-org--Some.Model/refs/evil", "../../..");
  expect_error(ErrorKind::kBadModel, {"refs/evil", "commit"}, [&] { snapshot("evil"); });
}

TEST_F(HubCacheTest, LooksWhereHuggingFaceLooks) {
  write_repository("home/hub");
  write_repository("xdg/huggingface/hub");
  write_repository(".cache/huggingface/hub");
  const auto path = [] { return resolve_model_path("some-org/Some.Model").path.string(); };
  EXPECT_NE(path().find("/.cache/huggingface/hub/"), std::string::npos);
  const ScopedEnvironment xdg("XDG_CACHE_HOME", (folder_ / "xdg").c_str());
  EXPECT_NE(path().find("/xdg/huggingface/hub/"), std::string::npos);
  const ScopedEnvironment home("HF_HOME", (folder_ / "home").c_str());
  EXPECT_NE(path().find("/home/hub/"), std::string::npos);
}

TEST_F(HubCacheTest, AMissingModelPrintsTheDownloadCommand) {
  expect_error(ErrorKind::kNotFound, {"some-org/Other is no path", ".cache/huggingface/hub", "hf download some-org/Other"},
               [] { resolve_model_path("some-org/Other"); });
}

}  // namespace
}  // namespace minisgl
