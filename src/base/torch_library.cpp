// See torch_library.h.
#include "base/torch_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <filesystem>

#include "shoal/error.h"

namespace shoal {

std::string torch_library_folder() {
  std::string folder;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const std::filesystem::path path = info->dlpi_name;
        if (path.filename() != "libtorch_cpu.so") return 0;
        *static_cast<std::string*>(found) = path.parent_path().string();
        return 1;
      },
      &folder);
  return folder;
}

void load_torch_cuda() {
  const std::string folder = torch_library_folder();
  const std::string path = folder.empty() ? "libtorch_cuda.so" : folder + "/libtorch_cuda.so";
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  const char* why = ::dlerror();
  throw Error("cuda", fmt::format("torch's CUDA library cannot be loaded: {}. Install a torch with CUDA.",
                                  why == nullptr ? "no reason given" : why));
}

}  // namespace shoal
