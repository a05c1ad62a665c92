// See slab.h.
#include "device/slab.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "device/cuda.h"
#include "shoal/error.h"

namespace shoal {

namespace {

std::atomic<uint64_t> next_slab_id{1};

[[noreturn]] void throw_no_memory(size_t nbytes, MemoryKind kind, const char* call) {
  throw Error("memory",
              fmt::format("{} of {} for {} failed: {}. Use a higher ZeRO stage, more ranks or a smaller model.", call,
                          format_nbytes(nbytes), name_of(kind), std::strerror(errno)));
}

void pin(void* data, size_t nbytes, MemoryKind kind) {
  try {
    cuda::register_host(data, nbytes);
  } catch (const std::exception& error) {
    throw Error("memory",
                fmt::format("{} of host memory for {} cannot be made ready for the GPU: {} Raise the limit on "
                            "locked memory (ulimit -l), free host memory, or offload less.",
                            format_nbytes(nbytes), name_of(kind), error.what()));
  }
}

std::byte* allocate_on_device(size_t nbytes, MemoryKind kind) {
  try {
    void* memory = cuda::allocate(nbytes);
    try {
      cuda::zero(memory, nbytes, nullptr);
      cuda::synchronize(nullptr);
    } catch (...) {
      cuda::release(memory);
      throw;
    }
    return static_cast<std::byte*>(memory);
  } catch (const Error& error) {
    throw NoDeviceMemory(
        fmt::format("{} of GPU memory for {} cannot be had: {}", format_nbytes(nbytes), name_of(kind), error.what()),
        "Use a higher ZeRO stage, offload, more ranks, a smaller micro-batch or a smaller model.");
  }
}

}  // namespace

NoDeviceMemory::NoDeviceMemory(std::string asked, const std::string& remedy)
    : Error("memory", asked + " " + remedy), asked_(std::move(asked)) {}

std::shared_ptr<Slab> Slab::create(size_t nbytes, Backing backing, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  std::shared_ptr<Slab> slab(new Slab());
  slab->id_ = next_slab_id.fetch_add(1);
  slab->kind_ = kind;
  slab->backing_ = backing;
  if (nbytes > 0 && backing == Backing::device) {
    slab->data_ = allocate_on_device(nbytes, kind);
    slab->nbytes_ = nbytes;
  } else if (nbytes > 0) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (backing == Backing::shareable) {
      slab->fd_ = memfd_create("shoal", MFD_CLOEXEC);
      if (slab->fd_ < 0) throw_no_memory(nbytes, kind, "memfd_create");
      if (ftruncate(slab->fd_, static_cast<off_t>(nbytes)) != 0) throw_no_memory(nbytes, kind, "ftruncate");
      flags = MAP_SHARED;
    }
    void* data = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, flags, slab->fd_, 0);
    if (data == MAP_FAILED) throw_no_memory(nbytes, kind, "mmap");
    if (backing != Backing::shareable) madvise(data, nbytes, MADV_HUGEPAGE);  // advice only: any answer is fine
    slab->data_ = static_cast<std::byte*>(data);
    slab->nbytes_ = nbytes;
    if (backing == Backing::pinned) pin(data, nbytes, kind);
  }
  slab->ledger_ = std::move(ledger);
  slab->ledger_->add(kind, nbytes);
  return slab;
}

Slab::~Slab() {
  if (data_ != nullptr && backing_ == Backing::device) cuda::release(data_);
  if (data_ != nullptr && backing_ == Backing::pinned) cuda::unregister_host(data_);
  if (data_ != nullptr && backing_ != Backing::device) munmap(data_, nbytes_);
  if (fd_ >= 0) close(fd_);
  if (ledger_) ledger_->remove(kind_, nbytes_);
}

}  // namespace shoal
