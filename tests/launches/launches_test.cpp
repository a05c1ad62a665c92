// What every kernel is launched with, on GPUs that are not here: threads, blocks and shared memory, against the limits
// of each compute capability that wheels are compiled for. Nothing runs; docs/install.md says what was run where.
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/decide.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/trust_ratio.h"
#include "kernels/cuda/update.h"
#include "launches/fake_cuda.h"
#include "models/ops/cuda/activation.h"
#include "models/ops/cuda/cross_entropy.h"
#include "models/ops/cuda/fp8.h"
#include "models/ops/cuda/norm.h"
#include "models/ops/cuda/rope.h"

namespace shoal::testing {
namespace {

namespace ops = models::ops::cuda;

constexpr DType kDtypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr int64_t kNumels[] = {1, 7, 1'000'003, int64_t{1} << 33};
constexpr int64_t kRows[] = {1, 3, 4099, int64_t{1} << 20};

// Addresses that nothing reads: on a vector of 16 bytes, or an element behind one.
void* at(bool aligned, DType dtype, int which = 0) {
  return reinterpret_cast<void*>((uintptr_t{1} << 40) + (uintptr_t{1} << 36) * which +
                                 (aligned ? 0 : nbytes_of(dtype)));
}
float* floats(int which) { return static_cast<float*>(at(true, DType::f32, which)); }
double* doubles(int which) { return static_cast<double*>(at(true, DType::f32, which)); }

void walk_conversions(bool aligned) {
  for (const int64_t numel : kNumels) {
    for (const DType in : kDtypes) {
      for (const DType out : kDtypes) {
        kernels::cuda::convert(at(true, in), in, at(aligned, out, 1), out, numel, nullptr);
        kernels::cuda::add(at(true, in), in, at(aligned, out, 1), out, numel, nullptr);
      }
    }
    kernels::cuda::split(floats(0), at(aligned, DType::bf16, 1), at(true, DType::bf16, 2), numel, nullptr);
    kernels::cuda::join(at(aligned, DType::bf16, 1), at(true, DType::bf16, 2), floats(0), numel, nullptr);
  }
}

void walk_sums(bool aligned) {
  for (const DType dtype : kDtypes) {
    const void* sources[] = {at(true, dtype), at(aligned, dtype, 1)};
    for (const int64_t numel : kNumels) {
      for (const int64_t group : {0, 2}) {
        for (const DType rounding : kDtypes) {
          for (const DType out : {DType::f32, rounding}) {
            kernels::cuda::ordered_fold({.sources = sources,
                                         .source_count = 2,
                                         .source_dtype = dtype,
                                         .out = at(true, out, 2),
                                         .out_dtype = out,
                                         .rounding = rounding,
                                         .numel = numel,
                                         .group = group},
                                        nullptr);
          }
        }
      }
      kernels::cuda::sum_squares(at(aligned, dtype), dtype, numel, 3, doubles(1), nullptr);
    }
  }
  for (const int ranges : {1, 5000}) {
    kernels::cuda::sum_pieces(static_cast<const kernels::PieceSums*>(at(true, DType::f32)), ranges, nullptr);
  }
}

void walk_blocks(bool aligned) {
  namespace cuda = kernels::cuda;
  for (const int bits : {8, 4}) {
    for (const int64_t numel : kNumels) {
      void* const blocks = at(aligned, DType::f32, 3);
      for (const DType dtype : kDtypes) {
        cuda::quantize(at(aligned, dtype), dtype, numel, bits, blocks, nullptr);
        cuda::dequantize(blocks, bits, at(aligned, dtype), dtype, numel, nullptr);
        // In the same memory, as many whole blocks.
        const int64_t whole = (numel + kBlockNumel - 1) / kBlockNumel * kBlockNumel;
        auto* const memory = static_cast<std::byte*>(at(true, dtype));
        const size_t nbytes = static_cast<size_t>(whole) * nbytes_of(dtype);
        cuda::quantize(memory, dtype, whole, bits, memory, nullptr);
        cuda::dequantize(memory + nbytes - Wire{dtype, bits}.nbytes(whole), bits, memory, dtype, whole, nullptr);
      }
      for (const bool forgets : {false, true}) {
        cuda::quantize_with_errors(floats(0), numel, bits, blocks, {at(aligned, DType::bf16, 1), 0.8f, forgets},
                                   nullptr);
      }
      for (const DType rounding : kDtypes) {
        for (const DType out : {DType::f32, rounding}) {
          kernels::BlockFold fold{
              .slices = blocks, .slice_nbytes = Wire{out, bits}.nbytes(numel), .bits = bits, .fold = {}};
          fold.fold.source_count = 2;
          fold.fold.out = at(aligned, out, 2);
          fold.fold.out_dtype = out;
          fold.fold.rounding = rounding;
          fold.fold.numel = numel;
          cuda::fold_blocks(fold, nullptr);
        }
      }
    }
  }
}

void walk_updates(bool aligned) {
  using kernels::Master;
  kernels::EveryStep::for_each([&](auto step) {
    using Step = decltype(step);
    kernels::cuda::decide({}, kernels::StepChoice<Step>{}, nullptr);
    for (const DType state : kDtypes) {
      for (const DType grad : kDtypes) {
        std::vector<kernels::Segment> segments;
        for (const auto& [weight, master] :
             {std::pair(DType::f32, Master::weight), std::pair(DType::bf16, Master::remainder),
              std::pair(DType::bf16, Master::full), std::pair(DType::f16, Master::full),
              std::pair(DType::bf16, Master::none), std::pair(DType::f16, Master::none)}) {
          const bool has_master = master == Master::remainder || master == Master::full;
          for (const int64_t numel : {int64_t{0}, int64_t{1}, int64_t{1} << 20, int64_t{1} << 28}) {
            segments.push_back({.numel = numel,
                                .weight = at(true, weight),
                                .weight_dtype = weight,
                                .master_kind = master,
                                .master = has_master ? at(true, DType::f32, 1) : nullptr,
                                .grad = at(aligned, grad, 2),
                                .grad_dtype = grad,
                                .first = at(true, state, 3),
                                .second = at(true, state, 4),
                                .state_dtype = state});
          }
        }
        const kernels::cuda::SegmentTable table(segments, std::vector<int>(segments.size()));
        const auto* steps = static_cast<const Step*>(at(true, DType::f32, 5));
        kernels::cuda::update(table, steps, nullptr, nullptr);
      }
    }
  });
  for (const int64_t count : {1, 100'000}) kernels::cuda::trust_ratios({.count = count}, nullptr);
}

void walk_norms(bool aligned) {
  for (const DType dtype : kDtypes) {
    for (const int64_t columns : {1, 7, 64, 100, 512, 768, 1600, 2048, 4095, 4096, 4097, 5120, 8192, 12288, 16384}) {
      for (const int64_t rows : kRows) {
        for (const bool more : {false, true}) {  // a residual, a bias, a gradient from elsewhere
          void* const other = more ? at(true, dtype, 1) : nullptr;
          const ops::NormForward forward{.x = at(aligned, dtype),
                                         .residual = other,
                                         .sum = other,
                                         .weight = at(true, dtype, 2),
                                         .bias = other,
                                         .y = at(true, dtype, 3),
                                         .mean = floats(4),
                                         .rstd = floats(5),
                                         .rows = rows,
                                         .columns = columns,
                                         .dtype = dtype};
          ops::rms_norm(forward, nullptr);
          ops::layer_norm(forward, nullptr);
          const ops::NormBackward backward{.x = at(aligned, dtype),
                                           .weight = at(true, dtype, 2),
                                           .mean = floats(4),
                                           .rstd = floats(5),
                                           .dy = at(true, dtype, 6),
                                           .dsum = other,
                                           .dx = at(true, dtype, 7),
                                           .dweight = at(true, dtype, 8),
                                           .dbias = other,
                                           .partials = floats(9),
                                           .rows = rows,
                                           .columns = columns,
                                           .dtype = dtype};
          ops::rms_norm_backward(backward, nullptr);
          ops::layer_norm_backward(backward, nullptr);
        }
      }
    }
  }
}

void walk_layers(bool aligned) {
  for (const DType dtype : kDtypes) {
    void *const a = at(aligned, dtype), *const b = at(true, dtype, 1), *const c = at(true, dtype, 2);
    for (const int64_t numel : kNumels) {
      ops::swiglu({.gate = a, .up = b, .y = c, .numel = numel, .dtype = dtype}, nullptr);
      for (void* const y : {static_cast<void*>(nullptr), b}) {
        ops::swiglu_backward(
            {.gate = a, .up = b, .dy = c, .dgate = a, .dup = b, .y = y, .numel = numel, .dtype = dtype}, nullptr);
      }
      for (const ops::Gelu kind : {ops::Gelu::exact, ops::Gelu::tanh}) {
        ops::gelu({.x = a, .y = b, .numel = numel, .kind = kind, .dtype = dtype}, nullptr);
        ops::gelu_backward({.x = a, .dy = b, .dx = c, .numel = numel, .kind = kind, .dtype = dtype}, nullptr);
      }
    }
    for (const int64_t dim : {2, 20, 64, 128, 256}) {
      for (const int64_t heads : {1, 9, 64}) {
        for (const int64_t rows : kRows) {
          const int64_t stride = heads * dim;
          ops::rope({.q = {a, b, heads, stride, stride},
                     .k = {c, c, heads, stride, stride},
                     .cos = floats(3),
                     .sin = floats(4),
                     .rows = rows,
                     .time = 4096,
                     .dim = dim,
                     .dtype = dtype},
                    nullptr);
        }
      }
    }
  }
}

void walk_losses(bool aligned) {
  const auto* targets = static_cast<const int64_t*>(at(true, DType::f32, 1));
  for (const DType dtype : kDtypes) {
    for (const int64_t vocab : {1, 7, 256, 4096, 32000, 50257, 128256, 262144, 1'000'000}) {
      for (const int64_t rows : kRows) {
        for (const bool gradient : {false, true}) {
          ops::cross_entropy({.logits = at(true, dtype),
                              .targets = targets,
                              .losses = floats(2),
                              .rows = rows,
                              .vocab = vocab,
                              .stride = (vocab + 7) / 8 * 8,
                              .with_gradient = gradient,
                              .dtype = dtype},
                             nullptr);
        }
      }
    }
    for (const DType out : kDtypes) {
      for (const int64_t numel : kNumels) {
        ops::scale_gradient({.in = at(aligned, dtype),
                             .out = at(true, out, 1),
                             .factor = floats(2),
                             .share = floats(3),
                             .numel = numel,
                             .in_dtype = dtype,
                             .out_dtype = out},
                            nullptr);
      }
    }
  }
  ops::mean_loss(floats(0), targets, 1 << 20, floats(2), floats(3), nullptr);
}

void walk_fp8() {
  for (const DType dtype : kDtypes) {
    for (const int64_t columns : {8, 4096, 65536}) {
      for (const int64_t rows : {0, 1, 100, 1 << 20}) {
        for (const ops::Fp8 format : {ops::Fp8::e4m3, ops::Fp8::e5m2}) {
          for (const bool by_line : {false, true}) {
            ops::to_fp8({.input = {at(true, dtype), rows, columns, dtype},
                         .format = format,
                         .out = at(true, dtype, 1),
                         .transposed = at(true, dtype, 2),
                         .padded_rows = (rows + 15) / 16 * 16,
                         .by_line = by_line,
                         .out_scales = floats(3),
                         .transposed_scales = floats(4)},
                        nullptr);
          }
        }
      }
    }
  }
}

void walk() {
  for (const bool aligned : {true, false}) {
    walk_conversions(aligned);
    walk_sums(aligned);
    walk_blocks(aligned);
    walk_updates(aligned);
    walk_norms(aligned);
    walk_layers(aligned);
    walk_losses(aligned);
  }
  walk_fp8();
}

class Launches : public ::testing::TestWithParam<GpuLimits> {};

TEST_P(Launches, EveryKernelIsLaunchedWithinTheLimits) {
  begin_launches(GetParam());
  walk();
  std::set<std::string> seen, refused;
  for (const Launch& launch : launches()) {
    seen.insert(launch.kernel);
    if (const std::string why = refusal_of(launch, GetParam()); !why.empty()) refused.insert(why);
  }
  EXPECT_THAT(refused, ::testing::IsEmpty());
  for (const auto& [kernel, file] : linked_kernels()) {
    EXPECT_TRUE(seen.count(kernel) == 1) << kernel << " of " << file << ".cu is launched by nothing here";
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, Launches, ::testing::ValuesIn(kGpus), [](const auto& gpu) {
  return "ComputeCapability" + std::to_string(gpu.param.major) + std::to_string(gpu.param.minor);
});

// A source of kernels that none of the calls above reaches would not even be linked.
TEST(LaunchesOfAllFiles, NoFileOfKernelsIsLeftOut) {
  std::set<std::string> files, linked;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(SHOAL_SOURCE_DIR "/src")) {
    if (entry.path().extension() == ".cu") files.insert(entry.path().stem().string());
  }
  for (const auto& [kernel, file] : linked_kernels()) linked.insert(file);
  EXPECT_GE(files.size(), 10u);
  EXPECT_EQ(linked, files);
}

TEST(LaunchesOfAllFiles, Fp8IsSaidOfGpusThatHaveIt) {
  for (const GpuLimits& gpu : kGpus) {
    begin_launches(gpu);
    EXPECT_EQ(ops::multiplies_fp8(), gpu.major >= 9 || gpu.minor == 9) << gpu.major << "." << gpu.minor;
  }
}

TEST(LaunchLimits, RefuseWhatAGpuWould) {
  const GpuLimits a40 = kGpus[1], h200 = kGpus[3];
  Launch launch{.kernel = "some", .grid = {1, 1, 1}, .block = {1024, 1, 1}};
  EXPECT_EQ(refusal_of(launch, a40), "");
  launch.block[1] = 2;
  EXPECT_EQ(refusal_of(launch, a40), "some on 8.6: 2048 threads in a block");
  launch.block[1] = 1;
  launch.grid[1] = 65536;
  EXPECT_EQ(refusal_of(launch, a40), "some on 8.6: 65536 blocks");
  launch.grid[1] = 0;
  EXPECT_EQ(refusal_of(launch, a40), "some on 8.6: 0 blocks");
  launch.grid[1] = 1;
  launch.dynamic_shared = 49 * kKiB;
  EXPECT_EQ(refusal_of(launch, a40), "some on 8.6: 50176 bytes of shared memory, and 0 were asked for");
  launch.asked_shared = 100 * kKiB;
  launch.dynamic_shared = 100 * kKiB;
  EXPECT_EQ(refusal_of(launch, a40), "some on 8.6: 102400 bytes of shared memory of 101376");
  EXPECT_EQ(refusal_of(launch, h200), "");
}

}  // namespace
}  // namespace shoal::testing
