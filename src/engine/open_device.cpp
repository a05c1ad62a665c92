// See include/shoal/device.h.
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/torch_library.h"
#include "comm/rendezvous/rendezvous.h"
#include "device/cuda.h"
#include "shoal/device.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// Without a launcher a process is alone on its host.
int local_rank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (std::getenv(name) != nullptr)
      return read_rendezvous([](const char* key) { return std::getenv(key); }).local_rank;
  }
  return 0;
}

}  // namespace

at::Device open_device(const std::string& text) {
  const std::string place = "device " + text;
  constexpr std::string_view kPrefix = "cuda:";
  int wanted = -1;  // the process's own
  if (text.starts_with(kPrefix)) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + kPrefix.size(), end, wanted);
    if (error != std::errc() || stop != end || wanted < 0) throw Error(place, "is no GPU. Write cuda:0, cuda:1, ...");
  } else if (text != "cpu" && text != "cuda" && text != "auto") {
    throw Error(place, "is not known. Use auto, cpu, cuda or cuda:<number>.");
  }
  if (text == "cpu") return at::kCPU;
  const int count = cuda::device_count();
  if (count == 0 && text == "auto") return at::kCPU;
  if (count == 0)
    throw Error(place,
                fmt::format("there is no GPU to use: {}. Mend that (shoal doctor), or use cpu.", cuda::why_none()));
  if (wanted >= count) {
    throw Error(place, count == 1 ? "there is 1 GPU here. Use cuda:0."
                                  : fmt::format("there are {} GPUs here. Use cuda:0 to cuda:{}.", count, count - 1));
  }
  load_torch_cuda();
  const int index = wanted >= 0 ? wanted : local_rank() % count;
  cuda::use_device(index);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  return device;
}

void prefer_cudnn_attention() {
  std::vector<int64_t> order;
  for (const at::SDPBackend backend :
       {at::SDPBackend::cudnn_attention, at::SDPBackend::flash_attention, at::SDPBackend::efficient_attention,
        at::SDPBackend::math, at::SDPBackend::overrideable}) {
    order.push_back(static_cast<int64_t>(backend));
  }
  at::globalContext().setSDPUseCuDNN(true);
  at::globalContext().setSDPPriorityOrder(order);
}

void allow_tf32(bool allowed) {
  at::globalContext().setAllowTF32CuBLAS(allowed);
  at::globalContext().setAllowTF32CuDNN(allowed);
}

void make_deterministic(at::Device device) {
  if (!device.is_cuda()) return;
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

}  // namespace shoal
