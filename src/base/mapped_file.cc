#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace minisgl {

namespace {

/// Closes on scope exit; the mapping or the text outlives the descriptor.
struct FileDescriptor {
  int value = -1;
  ~FileDescriptor() {
    if (value >= 0) ::close(value);
  }
};

/// Opens a regular file for reading and returns its size.
size_t open_regular(const std::filesystem::path& path, FileDescriptor& fd) {
  // O_NONBLOCK: a FIFO must be refused below, not waited for here. It changes nothing for a regular file.
  fd.value = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd.value < 0) fail_io("open", path, errno);
  struct stat status {};
  if (::fstat(fd.value, &status) != 0) fail_io("examine", path, errno);
  if (S_ISDIR(status.st_mode)) fail_io("read", path, EISDIR);
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::kIo, "cannot read {}: it is not a regular file", path.string());
  return static_cast<size_t>(status.st_size);
}

}  // namespace

void fail_io(const char* action, const std::filesystem::path& path, int error_number) {
  ErrorKind kind = ErrorKind::kIo;
  if (error_number == ENOENT || error_number == ENOTDIR) kind = ErrorKind::kNotFound;
  if (error_number == ENOMEM) kind = ErrorKind::kOutOfMemory;
  fail(kind, "cannot {} {}: {}", action, path.string(), std::strerror(error_number));
}

std::string read_text_file(const std::filesystem::path& path, size_t limit_bytes) {
  FileDescriptor fd;
  const size_t size = open_regular(path, fd);
  if (size > limit_bytes) fail(ErrorKind::kBadModel, "{} has {} bytes, at most {} are accepted", path.string(), size, limit_bytes);
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(fd.value, text.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_io("read", path, errno);
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  return text;
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  FileDescriptor fd;
  size_bytes_ = open_regular(path, fd);
  if (size_bytes_ == 0) return;
  void* data = ::mmap(nullptr, size_bytes_, PROT_READ, MAP_PRIVATE, fd.value, 0);
  if (data == MAP_FAILED) fail_io("map", path, errno);
  data_ = data;
}

MappedFile::~MappedFile() {
  unmap();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

void MappedFile::unmap() noexcept {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
  data_ = nullptr;
}

namespace {

/// madvise() over the part of the mapping that overlaps the range, rounded outwards to addresses that `unit` divides.
void advise(void* data, size_t size_bytes, size_t offset_bytes, size_t length_bytes, size_t unit, int advice) noexcept {
  if (data == nullptr || offset_bytes >= size_bytes || length_bytes == 0) return;
  const auto base = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = base + size_bytes;
  const uintptr_t from = std::max(base, (base + offset_bytes) / unit * unit);
  const uintptr_t to = base + offset_bytes + std::min(length_bytes, size_bytes - offset_bytes);
  const uintptr_t rounded = std::min(end, (to + unit - 1) / unit * unit);
  ::madvise(reinterpret_cast<void*>(from), rounded - from, advice);
}

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// A fault on a cached page may map the whole large folio it is in, and pages around it. Dropping only the pages that were read would leave
// the rest of those resident; 2 MiB is the largest folio.
constexpr size_t kDropUnitBytes = size_t{2} << 20;

}  // namespace

void MappedFile::prefetch(size_t offset_bytes, size_t length_bytes) const noexcept {
  advise(data_, size_bytes_, offset_bytes, length_bytes, page_bytes(), MADV_WILLNEED);
}

void MappedFile::drop(size_t offset_bytes, size_t length_bytes) const noexcept {
  advise(data_, size_bytes_, offset_bytes, length_bytes, kDropUnitBytes, MADV_DONTNEED);
}

}  // namespace minisgl
