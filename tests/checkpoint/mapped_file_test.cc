#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>

#include "checkpoint/expect_error.h"
#include "checkpoint/writers.h"

namespace minisgl {
namespace {

using test::expect_error;

TEST(MappedFile, ShowsTheFileAlsoAfterItsPagesWereDropped) {
  test::TemporaryFolder folder;
  std::string content(20000, 'a');
  content.back() = 'z';
  test::write_file(folder / "f", content);
  MappedFile file(folder / "f");
  MappedFile moved(std::move(file));
  EXPECT_EQ(file.size_bytes(), 0u);
  ASSERT_EQ(moved.size_bytes(), content.size());
  moved.prefetch(0, content.size());
  moved.drop(4095, 12000);
  moved.drop(0, content.size() * 2);
  moved.drop(content.size(), 1);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), content.data(), content.size()), 0);
}

TEST(MappedFile, AnEmptyFileIsEmpty) {
  test::TemporaryFolder folder;
  test::write_file(folder / "f", "");
  EXPECT_TRUE(MappedFile(folder / "f").bytes().empty());
  EXPECT_EQ(read_text_file(folder / "f", 0), "");
}

TEST(MappedFile, NamesWhatCannotBeOpened) {
  test::TemporaryFolder folder;
  expect_error(ErrorKind::kNotFound, {"cannot open", "absent", "No such file"}, [&] { MappedFile(folder / "absent"); });
  expect_error(ErrorKind::kIo, {"Is a directory"}, [&] { MappedFile(folder.path()); });
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(ErrorKind::kIo, {"pipe", "not a regular file"}, [&] { MappedFile(folder / "pipe"); });
  test::write_file(folder / "f", "12345");
  expect_error(ErrorKind::kBadModel, {"5 bytes", "at most 4"}, [&] { read_text_file(folder / "f", 4); });
}

TEST(MappedFile, ADeniedFileIsAnInputError) {
  test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "secret";
  test::write_file(path, "x");
  expect_error(ErrorKind::kIo, {"cannot open", "secret", "Permission denied"}, [&] { fail_io("open", path, EACCES); });
  // The real thing: without the rights of root if the test runs as root.
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0000), 0);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  expect_error(ErrorKind::kIo, {"cannot open", "secret", "Permission denied"}, [&] { MappedFile{path}; });
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
}

}  // namespace
}  // namespace minisgl
