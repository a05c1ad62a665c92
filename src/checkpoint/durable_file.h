// The door to the file system for checkpoints: every result is checked, every error names the file and the cause, and
// what must survive a power cut is synced. Knows nothing of what the bytes mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace shoal::checkpoint {

// Throws "cannot <verb> <path>: <the system's words> (ENOSPC). <what to do>".
[[noreturn]] void throw_io_error(std::string_view verb, const std::string& path, int error_number);

inline constexpr size_t kDirectAlignment = 4096;  // of what passes the page cache

// pwrite, or what stands for it in a test.
using WriteAt = std::function<int64_t(int fd, const void* data, size_t nbytes, int64_t offset)>;

// An open file; closed by the destructor. Several threads may write and read it.
class DurableFile {
 public:
  static DurableFile create(const std::string& path);     // new or emptied, to write
  static DurableFile open_read(const std::string& path);  // to read; a regular file only, so that nothing waits
  // New or emptied, with space for nbytes taken where the file system can, and past the page cache where it can: then
  // write_at takes its bytes at addresses, offsets and in numbers that are multiples of kDirectAlignment.
  static DurableFile create_sized(const std::string& path, int64_t nbytes, WriteAt write = {});
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  ~DurableFile();

  void write_at(int64_t offset, const void* data, size_t nbytes);
  // Throws when the file ends before.
  void read_at(int64_t offset, void* data, size_t nbytes) const;
  int64_t nbytes() const;
  void cut(int64_t nbytes);  // what is behind is gone
  // Returns when the bytes are on the disk.
  void sync();
  const std::string& path() const { return path_; }

 private:
  DurableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
  WriteAt write_ = {};  // instead of the system's
};

std::string read_text(const std::string& path);
// Writes a new file and syncs it. The folder's entry is not synced.
void write_text(const std::string& path, std::string_view text);
// Makes what was created, renamed or removed in a folder survive.
void sync_folder(const std::string& path);
// Makes the folder and the folders above it, synced; an existing one is fine.
void make_folders(const std::string& path);
// Puts `from` in the place of `to`, which may exist, in one step. A folder that stood at `to` is at `from` afterwards.
void replace(const std::string& from, const std::string& to);

}  // namespace shoal::checkpoint
