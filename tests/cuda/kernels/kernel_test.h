// What the tests of kernels/cuda share: Elements of tests/unit/kernels/awkward.h on the device, guards included.
#pragma once

#include "cuda/gpu.h"
#include "unit/kernels/awkward.h"

namespace shoal::kernels {

class KernelOnGpu : public OnGpu {
 protected:
  // A copy of `host` on the device; data() has the alignment of its offset.
  class Copy {
   public:
    Copy(KernelOnGpu& test, Elements& host, int64_t numel)
        : host_(&host),
          before_((host.count() - kGuard - numel) * nbytes()),
          whole_(static_cast<char*>(test.take_copy(static_cast<char*>(host.data()) - before_,
                                                   static_cast<size_t>(host.count() * nbytes())))) {}
    void* data() const { return whole_ + before_; }
    float* floats() const { return static_cast<float*>(data()); }
    // What the device has now.
    Elements now() const {
      Elements elements = *host_;
      read(static_cast<char*>(elements.data()) - before_, whole_, static_cast<size_t>(host_->count() * nbytes()));
      return elements;
    }

   private:
    int64_t nbytes() const { return static_cast<int64_t>(nbytes_of(host_->dtype())); }
    Elements* host_;
    int64_t before_;
    char* whole_;
  };

  const Kernels& reference_ = kernels_of(Isa::reference);
};

// Every alignment of a vector of four, and lengths around vectors, blocks and tiles.
inline constexpr int64_t kEveryOffset[] = {0, 1, 2, 3};
inline std::vector<int64_t> device_numels() {
  if (tests_are_small()) return {0, 1, 5, 33, 2049, 4097};
  return {0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 127, 1023, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 10007};
}

}  // namespace shoal::kernels
