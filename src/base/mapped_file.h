#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace minisgl {

/// Throws the Error for a failed system call on a file: kNotFound for ENOENT and ENOTDIR, kOutOfMemory for ENOMEM, else kIo. The message is
/// "cannot <action> <path>: <reason of error_number>".
[[noreturn]] void fail_io(const char* action, const std::filesystem::path& path, int error_number);

/// The whole of a small text file (JSON, a template). Throws Error(kNotFound or kIo), or Error(kBadModel) if it has more than
/// `limit_bytes`.
std::string read_text_file(const std::filesystem::path& path, size_t limit_bytes);

/// A regular file mapped read-only. Move-only. Reading past a truncation that happens after open() is a fault of the process, as with
/// every mapping; the size is therefore taken once, at open().
class MappedFile {
 public:
  MappedFile() = default;
  /// Maps `path`. Throws as fail_io(); an empty file has an empty span; a folder, socket or device is refused.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_bytes_}; }
  size_t size_bytes() const { return size_bytes_; }
  const std::filesystem::path& path() const { return path_; }

  /// Asks the system to read [offset, offset + length) ahead. A hint: never fails.
  void prefetch(size_t offset_bytes, size_t length_bytes) const noexcept;
  /// Takes the pages that overlap the range, and some beside them, out of this process's resident set; their content stays readable, from
  /// the page cache, also for a thread that is reading it.
  void drop(size_t offset_bytes, size_t length_bytes) const noexcept;

 private:
  void unmap() noexcept;

  std::filesystem::path path_;
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace minisgl
