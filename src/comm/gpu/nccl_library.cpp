// See nccl_library.h.
#include "comm/gpu/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/torch_library.h"
#include "shoal/error.h"

namespace shoal {

namespace {

void* open_nccl() {
  // Beside torch, as its wheels lie; then wherever the system's loader finds it. The copy that is loaded already comes
  // first: two of them in one process would not know each other.
  std::vector<std::string> paths;
  const std::string torch = torch_library_folder();
  if (!torch.empty()) paths.push_back(torch + "/../../nvidia/nccl/lib/libnccl.so.2");
  paths.emplace_back("libnccl.so.2");
  if (void* loaded = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD)) return loaded;
  for (const std::string& path : paths) {
    if (void* opened = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
  }
  const char* why = ::dlerror();
  throw Error("comm nccl", fmt::format("libnccl.so.2 cannot be loaded: {}. Install torch with its CUDA packages.",
                                       why == nullptr ? "no reason given" : why));
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) {
    throw Error("comm nccl", fmt::format("libnccl.so.2 has no {}. Shoal needs NCCL 2.19 or newer.", name));
  }
}

NcclLibrary load() {
  void* library = open_nccl();
  NcclLibrary nccl{};
  find(library, "ncclGetVersion", nccl.get_version);
  find(library, "ncclGetUniqueId", nccl.get_unique_id);
  find(library, "ncclCommInitRank", nccl.comm_init_rank);
  find(library, "ncclCommDestroy", nccl.comm_destroy);
  find(library, "ncclCommAbort", nccl.comm_abort);
  find(library, "ncclCommGetAsyncError", nccl.comm_get_async_error);
  find(library, "ncclAllGather", nccl.all_gather);
  find(library, "ncclReduceScatter", nccl.reduce_scatter);
  find(library, "ncclAllReduce", nccl.all_reduce);
  find(library, "ncclBroadcast", nccl.broadcast);
  find(library, "ncclSend", nccl.send);
  find(library, "ncclRecv", nccl.receive);
  find(library, "ncclGroupStart", nccl.group_start);
  find(library, "ncclGroupEnd", nccl.group_end);
  find(library, "ncclGetErrorString", nccl.get_error_string);
  return nccl;
}

}  // namespace

const NcclLibrary& NcclLibrary::get() {
  static const NcclLibrary library = load();
  return library;
}

void NcclLibrary::check(int result, const char* call) const {
  if (result == 0) return;
  throw Error("comm nccl", fmt::format("{} failed: {}. NCCL_DEBUG=WARN in the environment says more.", call,
                                       get_error_string(result)));
}

}  // namespace shoal
