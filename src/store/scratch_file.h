// A file of one rank in a folder of its own under nvme_path (scratch_folder.h), counted in a ledger. Both go with it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "device/ledger.h"
#include "shoal/config.h"
#include "store/disk_file.h"
#include "store/scratch_folder.h"

namespace shoal {

// How a config wants a file read and written; no folder yet.
DiskFile::Options scratch_options(const AioConfig& aio, bool verify, const std::string& name, size_t nbytes);

class ScratchFile {
 public:
  // Throws shoal::Error when the folder cannot be made, or the space is not there. The options' folder is set here.
  ScratchFile(const std::filesystem::path& parent, DiskFile::Options options, std::shared_ptr<Ledger> ledger,
              MemoryKind kind);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  DiskFile& file() { return file_; }
  DiskFile::Counters counters() const { return file_.counters(); }
  // What a run should print: what dead runs had left in the parent.
  const std::vector<std::string>& notes() const { return folder_.notes(); }
  // For people: where the file is and how it is read.
  std::string description() const;

 private:
  ScratchFolder folder_;
  DiskFile file_;
  std::shared_ptr<Ledger> ledger_;
  MemoryKind kind_;
};

}  // namespace shoal
