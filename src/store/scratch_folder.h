// The folder that one rank of a run owns under nvme_path, for as long as it lives:
//
//   shoal-<host>-<pid>-<random>/         holds the files of the rank
//     lock                               locked (flock) by its owner
//   .shoal-new-<host>-<pid>-<random>/    on its way to become one: named when its lock is held
//
// Two runs on one path cannot touch each other's; what a killed run left is recognised by its lock, which nobody holds.
// A process that ends by exit takes its folders with it, whoever still holds them.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace shoal {

class ScratchFolder {
 public:
  // Makes `parent` if needed, removes there what dead runs of this host left, and makes the folder. Throws shoal::Error
  // when it cannot be made. `host` is for tests: "" takes the name of this one.
  explicit ScratchFolder(const std::filesystem::path& parent, const std::string& host = "");
  // Removes the folder with all in it, unless this is a forked child of its owner.
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Lines that a run should print: what was removed, what was left alone and why. Often none.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::filesystem::path path_;
  pid_t owner_ = -1;
  int lock_fd_ = -1;
  std::vector<std::string> notes_;
};

}  // namespace shoal
