// See model_flops.h.
#include "train/model_flops.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "device/cuda.h"
#include "forecast/decoder_shape.h"

namespace shoal::train {

namespace {

struct Peak {
  const char* part;  // of the name that the driver gives; the first that fits counts
  double narrow = 0, fp32 = 0;
};
// TFLOP/s of NVIDIA's data sheets, dense.
constexpr std::array<Peak, 13> kPeaks = {{{"H100 PCIe", 756, 51},
                                          {"H100 NVL", 835, 60},
                                          {"H100", 989, 67},
                                          {"H200", 989, 67},
                                          {"GH200", 989, 67},
                                          {"H800", 989, 67},
                                          {"B200", 2250, 75},
                                          {"GB200", 2500, 80},
                                          {"A100", 312, 19.5},
                                          {"A800", 312, 19.5},
                                          {"A40", 149.7, 37.4},
                                          {"A30", 165, 10.3},
                                          {"L40S", 362, 91.6}}};

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// As a word: an RTX A4000 is no A40.
bool names(const std::string& gpu, const std::string& part) {
  for (size_t at = gpu.find(part); at != std::string::npos; at = gpu.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || !is_letter(gpu[at - 1])) && (end == gpu.size() || !is_letter(gpu[end]))) return true;
  }
  return false;
}

}  // namespace

double peak_flops_of(const std::string& gpu, Precision precision, bool tf32) {
  const auto* found =
      std::find_if(kPeaks.begin(), kPeaks.end(), [&](const Peak& peak) { return names(gpu, peak.part); });
  if (found == kPeaks.end()) return 0;
  if (precision != Precision::fp32) return found->narrow * 1e12;
  return (tf32 ? found->narrow / 2 : found->fp32) * 1e12;
}

ModelFlops flops_of(const TrainOptions& options, const PreparedRun& run, at::Device device) {
  ModelFlops flops;
  flops.per_token = forecast::model_flops_a_token(run.model->info().shape, run.cut.sequence);
  flops.device = device.is_cuda() ? cuda::facts_of(device.index()).name : "cpu";
  flops.peak = options.peak_tflops > 0 ? options.peak_tflops * 1e12
                                       : peak_flops_of(flops.device, run.config.precision, run.config.shoal.tf32);
  return flops;
}

double mfu_per_token(const ModelFlops& flops, int ranks) {
  return flops.peak > 0 ? flops.per_token / (flops.peak * ranks) : 0;
}

}  // namespace shoal::train
