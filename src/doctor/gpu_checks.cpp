// See gpu_checks.h.
#include "doctor/gpu_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/text.h"
#include "base/torch_library.h"
#include "comm/gpu/nccl_library.h"
#include "device/cuda.h"
#include "device/cuda_queue.h"
#include "models/ops/cudnn_backward.h"
#include "shoal/error.h"

namespace shoal::doctor {

namespace {

constexpr size_t kCopyNbytes = size_t{256} << 20;

// GPU memory for a measurement.
class Scratch {
 public:
  explicit Scratch(size_t nbytes) : memory_(cuda::allocate(nbytes)) {}
  ~Scratch() { cuda::release(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return memory_; }

 private:
  void* memory_;
};

// Bytes a second of the best of a few copies.
double rate_of(void* to, const void* from) {
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    cuda::copy(to, from, kCopyNbytes, nullptr);
    cuda::synchronize(nullptr);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, static_cast<double>(kCopyNbytes) / seconds);
  }
  return best;
}

// Runs one kernel; "" where its result is right.
std::string try_kernel(int index) {
  const std::unique_ptr<Queue> queue = make_cuda_queue(index, nullptr);
  const Scratch in(sizeof(float)), out(sizeof(uint16_t));
  const float one_and_a_half = 1.5f;
  uint16_t rounded = 0;
  cuda::copy(in.data(), &one_and_a_half, sizeof(one_and_a_half), nullptr);
  try {
    queue->convert(in.data(), DType::f32, out.data(), DType::bf16, 1);
  } catch (const Error& error) {
    return error.what();
  }
  cuda::copy(&rounded, out.data(), sizeof(rounded), nullptr);
  cuda::synchronize(nullptr);
  constexpr uint16_t kInBf16 = 0x3fc0;
  return rounded == kInBf16 ? "" : fmt::format("a kernel gave {:#06x} instead of {:#06x}", rounded, kInBf16);
}

GpuMeasures measure(int index) {
  cuda::use_device(index);
  const cuda::DeviceFacts facts = cuda::facts_of(index);
  GpuMeasures gpu;
  gpu.index = index;
  gpu.name = facts.name;
  gpu.major = facts.major;
  gpu.minor = facts.minor;
  gpu.total_nbytes = facts.total_nbytes;
  gpu.free_nbytes = facts.free_nbytes;
  gpu.kernel_trouble = try_kernel(index);
  if (gpu.free_nbytes < 3 * kCopyNbytes) return gpu;
  const Scratch first(kCopyNbytes), second(kCopyNbytes);
  const cuda::PinnedMemory host(kCopyNbytes);
  gpu.on_device = 2 * rate_of(first.data(), second.data());
  gpu.to_device = rate_of(first.data(), host.data());
  gpu.from_device = rate_of(host.data(), first.data());
  return gpu;
}

template <class Check>
Finding try_out(const std::string& subject, const Check& check) {
  try {
    return {subject, Health::good, check(), ""};
  } catch (const Error& error) {
    return {subject, Health::missing, error.what(), "Training on GPUs will not start before this is mended."};
  }
}

}  // namespace

std::vector<Finding> judge_gpu(const GpuMeasures& gpu) {
  const std::string subject = fmt::format("GPU {}", gpu.index);
  std::vector<Finding> findings;
  Finding memory{subject, Health::good,
                 fmt::format("{}, compute {}.{}, {} of {} free", gpu.name, gpu.major, gpu.minor,
                             format_nbytes(gpu.free_nbytes), format_nbytes(gpu.total_nbytes)),
                 ""};
  if (gpu.free_nbytes < gpu.total_nbytes / 10 * 9) {
    memory.health = Health::poor;
    memory.remedy = "Something else holds the rest: nvidia-smi names it.";
  }
  findings.push_back(memory);
  if (!gpu.kernel_trouble.empty()) {
    findings.push_back(
        {subject, Health::missing, "our kernels do not run there: " + gpu.kernel_trouble,
         fmt::format("Build for it: cmake --preset release -DSHOAL_CUDA_ARCHITECTURES={}{}.", gpu.major, gpu.minor)});
  }
  if (gpu.on_device == 0) return findings;
  Finding bus{subject, Health::good,
              fmt::format("copies {:.0f} GB/s on the GPU, {:.1f} to it, {:.1f} from it", gpu.on_device * 1e-9,
                          gpu.to_device * 1e-9, gpu.from_device * 1e-9),
              ""};
  constexpr double kPcie4 = 20e9;  // what 16 lanes of PCIe 4 carry, less what is always lost
  if (std::min(gpu.to_device, gpu.from_device) < kPcie4) {
    bus.health = Health::poor;
    bus.remedy =
        "Slower than PCIe 4 with 16 lanes: offload will show. Look at the slot (nvidia-smi -q -d PCIE), and "
        "that processes run on the GPU's own NUMA node.";
  }
  findings.push_back(bus);
  return findings;
}

Finding judge_driver(const cuda::Versions& versions) {
  const auto words = [](int version) { return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10); };
  if (versions.build == 0) {
    return {"driver", Health::missing, "not looked for: this build has no CUDA",
            "Build Shoal where the CUDA toolkit is, to train on a GPU."};
  }
  if (versions.driver == 0) {
    return {"driver", Health::missing, "none", "Install NVIDIA's driver; in a container, start it with --gpus all."};
  }
  if (versions.driver / 1000 < versions.build / 1000) {
    return {"driver", Health::missing,
            fmt::format("runs {}, this build is of {}", words(versions.driver), words(versions.build)),
            fmt::format("Install a driver for {}, or build Shoal and torch for {}.", words(versions.build),
                        words(versions.driver))};
  }
  return {"driver", Health::good,
          fmt::format("runs {}, this build is of {}", words(versions.driver), words(versions.build)), ""};
}

std::vector<Finding> check_gpus() {
  const int count = cuda::device_count();
  std::vector<Finding> findings{judge_driver(cuda::versions())};
  if (count == 0) {
    findings.push_back(
        {"GPU", Health::missing, "none: " + cuda::why_none(), "Training runs on the CPU (--device cpu)."});
    return findings;
  }
  findings.push_back(try_out("torch", [] {
    load_torch_cuda();
    return std::string("its CUDA library loads");
  }));
  findings.push_back(try_out("NCCL", [] {
    int version = 0;
    const NcclLibrary& nccl = NcclLibrary::get();
    nccl.check(nccl.get_version(&version), "ncclGetVersion");
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }));
  findings.push_back({"attention", Health::good,
                      models::ops::has_cudnn_backward()
                          ? "--deterministic takes cuDNN's backward"
                          : "--deterministic takes FlashAttention's backward: built without nvidia-cudnn-frontend",
                      ""});
  for (int index = 0; index < count; ++index) {
    try {
      for (Finding& finding : judge_gpu(measure(index))) findings.push_back(std::move(finding));
    } catch (const Error& error) {
      findings.push_back({fmt::format("GPU {}", index), Health::missing, error.what(),
                          "Look at nvidia-smi and the kernel's log (dmesg); leave this GPU out with "
                          "CUDA_VISIBLE_DEVICES."});
    }
  }
  return findings;
}

}  // namespace shoal::doctor
