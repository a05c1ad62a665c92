// See scratch_file.h.
#include "store/scratch_file.h"

#include <fmt/format.h>

#include <utility>

#include "plan/memory.h"

namespace shoal {

namespace {

DiskFile::Options in_folder(DiskFile::Options options, const std::filesystem::path& folder) {
  options.folder = folder;
  return options;
}

}  // namespace

DiskFile::Options scratch_options(const AioConfig& aio, bool verify, const std::string& name, size_t nbytes) {
  DiskFile::Options options;
  options.name = name;
  options.nbytes = nbytes;
  options.block_nbytes = in_pages(static_cast<size_t>(aio.block_size));
  options.queue_depth = aio.queue_depth;
  options.threads = aio.threads;
  options.checksum = verify;
  return options;
}

ScratchFile::ScratchFile(const std::filesystem::path& parent, DiskFile::Options options, std::shared_ptr<Ledger> ledger,
                         MemoryKind kind)
    : folder_(parent), file_(in_folder(std::move(options), folder_.path())), ledger_(std::move(ledger)), kind_(kind) {
  ledger_->add(kind_, file_.nbytes());
}

ScratchFile::~ScratchFile() { ledger_->remove(kind_, file_.nbytes()); }

std::string ScratchFile::description() const {
  return fmt::format("{} ({})", file_.path().string(), file_.description());
}

}  // namespace shoal
