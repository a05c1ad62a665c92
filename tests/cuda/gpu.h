// What tests on a GPU share: they skip with the reason where there is none, and get device memory that a test gives
// back as a whole. SHOAL_TEST_SIZE=small makes grids small, and every piece of memory an allocation of its own, so that
// compute-sanitizer sees where each ends.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "test_size.h"

namespace shoal {

using testing::tests_are_small;

// Empty where a GPU can be used, else the reason in words.
inline std::string why_no_gpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return std::string("no GPU: ") + cudaGetErrorString(error);
  return count > 0 ? "" : "no GPU: the driver counts none";
}

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_gpu(); !reason.empty()) GTEST_SKIP() << reason;
  }

  // Memory of the device, 256-byte aligned, filled with bytes that no kernel should leave behind; free at reset() and
  // at the end of the test.
  void* take(size_t nbytes) {
    void* memory = nullptr;
    const size_t begin = (used_ + 255) / 256 * 256;
    if (tests_are_small() || begin + nbytes > kArenaNbytes) {
      check(cudaMalloc(&memory, nbytes > 0 ? nbytes : 1), "cudaMalloc");
      own_.push_back(memory);
    } else {
      if (arena_ == nullptr) check(cudaMalloc(&arena_, kArenaNbytes), "cudaMalloc");
      memory = static_cast<char*>(arena_) + begin;
      used_ = begin + nbytes;
    }
    check(cudaMemset(memory, 0xa5, nbytes), "cudaMemset");
    return memory;
  }
  void* take_copy(const void* host, size_t nbytes) {
    void* memory = take(nbytes);
    check(cudaMemcpy(memory, host, nbytes, cudaMemcpyHostToDevice), "copy to the device");
    return memory;
  }
  template <class T>
  T* take_copy(const std::vector<T>& host) {
    return static_cast<T*>(take_copy(host.data(), host.size() * sizeof(T)));
  }
  // Waits for all that was queued.
  static void read(void* host, const void* device, size_t nbytes) {
    check(cudaDeviceSynchronize(), "a kernel before");
    check(cudaMemcpy(host, device, nbytes, cudaMemcpyDeviceToHost), "copy from the device");
  }
  template <class T>
  static std::vector<T> read(const T* device, size_t count) {
    std::vector<T> host(count);
    read(host.data(), device, count * sizeof(T));
    return host;
  }
  void reset() {
    for (void* memory : own_) cudaFree(memory);
    own_.clear();
    used_ = 0;
  }
  void TearDown() override {
    reset();
    cudaFree(arena_);
    arena_ = nullptr;
  }

  static void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }

 private:
  static constexpr size_t kArenaNbytes = size_t{256} << 20;
  void* arena_ = nullptr;
  size_t used_ = 0;
  std::vector<void*> own_;
};

}  // namespace shoal
