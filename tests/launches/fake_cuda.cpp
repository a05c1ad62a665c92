// See fake_cuda.h.
#include "launches/fake_cuda.h"

#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

namespace shoal::testing {

namespace {

struct Fake {
  GpuLimits gpu;
  std::vector<Launch> launches;
  std::map<const void*, std::string> kernel_of;  // by the host's function that stands for it
  std::set<std::pair<std::string, std::string>> linked;
  std::map<const void*, int> asked_shared;
  // What stands between <<< and >>>, until the function behind them takes it.
  dim3 grid, block;
  size_t dynamic_shared = 0;
};

// Kernels register themselves before main().
Fake& fake() {
  static Fake one;
  return one;
}

// "void shoal::...::(anonymous namespace)::norm_backward<float, 4>(...)" -> "norm_backward".
std::string short_name(const char* mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : mangled;
  std::free(text);
  for (size_t at; (at = name.find("(anonymous namespace)")) != std::string::npos;) name.replace(at, 21, "local");
  name = name.substr(0, name.find_first_of("<("));
  return name.substr(name.rfind(':') + 1);
}

// A kernel without linkage has its file in its name: "..._GLOBAL__N__1a2b3c4d_7_norm_cu_5e6f7a8b_...".
std::string file_of(const std::string& mangled) {
  const size_t end = mangled.find("_cu_");
  if (end == std::string::npos) return "";
  size_t begin = end;
  while (begin > 0 && !(mangled[begin - 1] == '_' && begin >= 2 && std::isdigit(mangled[begin - 2]) != 0)) --begin;
  return mangled.substr(begin, end - begin);
}

void note(const void* function, dim3 grid, dim3 block, size_t dynamic_shared) {
  Launch launch;
  launch.kernel = fake().kernel_of.at(function);
  launch.grid[0] = grid.x, launch.grid[1] = grid.y, launch.grid[2] = grid.z;
  launch.block[0] = block.x, launch.block[1] = block.y, launch.block[2] = block.z;
  launch.dynamic_shared = dynamic_shared;
  const auto asked = fake().asked_shared.find(function);
  if (asked != fake().asked_shared.end()) launch.asked_shared = asked->second;
  fake().launches.push_back(launch);
}

}  // namespace

void begin_launches(const GpuLimits& gpu) {
  fake().gpu = gpu;
  fake().launches.clear();
  fake().asked_shared.clear();
}

const std::vector<Launch>& launches() { return fake().launches; }
const std::set<std::pair<std::string, std::string>>& linked_kernels() { return fake().linked; }

std::string refusal_of(const Launch& launch, const GpuLimits& gpu) {
  const auto says = [&](const std::string& what) {
    return fmt::format("{} on {}.{}: {}", launch.kernel, gpu.major, gpu.minor, what);
  };
  for (int i = 0; i < 3; ++i) {
    const uint64_t most_blocks = i == 0 ? kGridWidth : kGridHeight, most_threads = i == 2 ? kBlockDepth : kBlockThreads;
    if (launch.grid[i] < 1 || launch.grid[i] > most_blocks) return says(fmt::format("{} blocks", launch.grid[i]));
    if (launch.block[i] < 1 || launch.block[i] > most_threads) return says(fmt::format("{} threads", launch.block[i]));
  }
  const uint64_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  if (threads > kBlockThreads) return says(fmt::format("{} threads in a block", threads));
  const auto dynamic = static_cast<int64_t>(launch.dynamic_shared);
  if (dynamic > std::max(kSharedUnasked, launch.asked_shared)) {
    return says(fmt::format("{} bytes of shared memory, and {} were asked for", dynamic, launch.asked_shared));
  }
  if (dynamic > 0 && dynamic + kStaticShared > gpu.block_shared) {
    return says(fmt::format("{} bytes of shared memory of {}", dynamic, gpu.block_shared));
  }
  return "";
}

}  // namespace shoal::testing

// What the linker puts in place of the runtime's functions. See __cudaRegisterFunction and what `kernel<<<...>>>` calls
// in crt/host_runtime.h of the toolkit.
using shoal::testing::fake;

extern "C" {

void __wrap___cudaRegisterFunction(void** /*fat_binary*/, const char* host_function, char* /*device_function*/,
                                   const char* device_name, int /*thread_limit*/, void* /*tid*/, void* /*bid*/,
                                   void* /*block*/, void* /*grid*/, int* /*warp_size*/) {
  const std::string name = shoal::testing::short_name(device_name);
  fake().kernel_of[host_function] = name;
  fake().linked.emplace(name, shoal::testing::file_of(device_name));
}

unsigned __wrap___cudaPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic_shared, void* /*stream*/) {
  fake().grid = grid, fake().block = block, fake().dynamic_shared = dynamic_shared;
  return 0;
}
cudaError_t __wrap___cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* dynamic_shared, void* stream) {
  *grid = fake().grid, *block = fake().block, *dynamic_shared = fake().dynamic_shared;
  *static_cast<void**>(stream) = nullptr;
  return cudaSuccess;
}
// A kernel's handle is the host's function itself.
cudaError_t __wrap___cudaGetKernel(const void** handle, const void* function) {
  *handle = function;
  return cudaSuccess;
}
cudaError_t __wrap___cudaLaunchKernel(const void* handle, dim3 grid, dim3 block, void** /*arguments*/,
                                      size_t dynamic_shared, void* /*stream*/) {
  shoal::testing::note(handle, grid, block, dynamic_shared);
  return cudaSuccess;
}
cudaError_t __wrap_cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** /*arguments*/,
                                    size_t dynamic_shared, void* /*stream*/) {
  shoal::testing::note(function, grid, block, dynamic_shared);
  return cudaSuccess;
}
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** /*arguments*/) {
  shoal::testing::note(function, config->gridDim, config->blockDim, config->dynamicSmemBytes);
  return cudaSuccess;
}

// As the real one, refuses more than a block may have; what the kernel has without asking counts too.
cudaError_t __wrap_cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
  if (value + shoal::testing::kStaticShared > fake().gpu.block_shared) return cudaErrorInvalidValue;
  fake().asked_shared[function] = value;
  return cudaSuccess;
}
cudaError_t __wrap_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* /*function*/,
                                                                          int threads, size_t dynamic_shared,
                                                                          unsigned /*flags*/) {
  const auto& gpu = fake().gpu;
  const int by_shared = gpu.processor_shared / (static_cast<int>(dynamic_shared) + 2 * shoal::testing::kStaticShared);
  *blocks = std::min(gpu.processor_threads / threads, by_shared);
  return cudaSuccess;
}
cudaError_t __wrap_cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t __wrap_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  const auto& gpu = fake().gpu;
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = gpu.block_shared; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = gpu.processors; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = gpu.major; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = gpu.minor; return cudaSuccess;
    default: return cudaErrorInvalidValue;
  }
}
cudaError_t __wrap_cudaGetLastError() { return cudaSuccess; }
cudaError_t __wrap_cudaMalloc(void** memory, size_t nbytes) {
  *memory = std::malloc(nbytes);
  return cudaSuccess;
}
cudaError_t __wrap_cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t __wrap_cudaMemcpy(void* to, const void* from, size_t nbytes, cudaMemcpyKind /*kind*/) {
  std::memcpy(to, from, nbytes);
  return cudaSuccess;
}
cudaError_t __wrap_cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) { return cudaSuccess; }
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

}  // extern "C"
