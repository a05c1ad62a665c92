// Stands for the CUDA runtime under the library's own launching code: says what GPU there is, notes each launch, and
// runs nothing. The linker puts it in place of the real one (--wrap in tests/launches.cmake), so it needs no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace shoal::testing {

// What a launch may take on GPUs of one compute capability: the table "Technical Specifications per Compute Capability"
// of the CUDA programming guide.
struct GpuLimits {
  int major = 0, minor = 0;
  int processors = 0;         // of a GPU that is sold
  int block_shared = 0;       // bytes of shared memory a block may ask for (opt-in), static and dynamic together
  int processor_shared = 0;   // bytes of a processor
  int processor_threads = 0;  // resident at once
};
inline constexpr int kKiB = 1024;
inline constexpr GpuLimits kGpus[] = {
    {8, 0, 108, 163 * kKiB, 164 * kKiB, 2048},   // A100
    {8, 6, 84, 99 * kKiB, 100 * kKiB, 1536},     // A40
    {8, 9, 142, 99 * kKiB, 100 * kKiB, 1536},    // L40
    {9, 0, 132, 227 * kKiB, 228 * kKiB, 2048},   // H200
    {10, 0, 148, 227 * kKiB, 228 * kKiB, 2048},  // B200
    {12, 0, 170, 99 * kKiB, 100 * kKiB, 1536},   // RTX 5090
};
// Alike on all of them.
inline constexpr int kBlockThreads = 1024, kBlockDepth = 64;
inline constexpr int64_t kGridWidth = 2147483647, kGridHeight = 65535;
inline constexpr int kSharedUnasked = 48 * kKiB;  // dynamic memory that needs no cudaFuncSetAttribute
// Of kernels that ask for dynamic memory, at most: what the launching code leaves for it.
inline constexpr int kStaticShared = 1024;

struct Launch {
  std::string kernel;  // "norm_backward", without its namespace and arguments
  uint64_t grid[3] = {}, block[3] = {};
  size_t dynamic_shared = 0;
  int asked_shared = 0;  // by cudaFuncSetAttribute, before
};

// From now on there is such a GPU, and no launch yet.
void begin_launches(const GpuLimits& gpu);
const std::vector<Launch>& launches();
// Kernels that the program was linked with, each with the name of its file: "norm" of norm.cu.
const std::set<std::pair<std::string, std::string>>& linked_kernels();

// "" or what of it that GPU refuses.
std::string refusal_of(const Launch& launch, const GpuLimits& gpu);

}  // namespace shoal::testing
