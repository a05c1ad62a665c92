// The engine's CUDA kernels against the device's own roof, a copy from device memory to device memory (bytes read and
// written counted). Medians of 25 rounds by CUDA events. Before each round other memory is read, so that nothing of the
// round's own stands in the cache.
//
//   bench_cuda_kernels                    prints a table
//   bench_cuda_kernels --most 100000000   no shard beyond so many elements
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/update.h"

namespace shoal {
namespace {

using kernels::cuda::SegmentTable;

constexpr int kRounds = 25;
constexpr int64_t kMillion = 1'000'000;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t nbytes) { check(cudaMalloc(&data_, nbytes)); }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
};

// Memory filled with one pattern over and over. Real values: zeros would send roots and quotients down slow paths.
class Array {
 public:
  Array(int64_t numel, DType dtype, float scale, bool positive) : memory_(nbytes(numel, dtype)) {
    constexpr int64_t kPattern = 1 << 16;
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(kPattern);
    for (float& value : values) value = positive ? std::abs(normal(random)) : normal(random);
    const DeviceMemory pattern(kPattern * sizeof(float));
    check(cudaMemcpy(pattern.data(), values.data(), kPattern * sizeof(float), cudaMemcpyHostToDevice));
    const size_t whole = nbytes(numel, dtype);
    const auto first = std::min(numel, kPattern);
    kernels::cuda::convert(pattern.data(), DType::f32, data(), dtype, first, nullptr);
    for (size_t done = nbytes(first, dtype); done < whole;) {
      const size_t more = std::min(done, whole - done);
      check(cudaMemcpy(data() + done, data(), more, cudaMemcpyDeviceToDevice));
      done += more;
    }
    check(cudaDeviceSynchronize());
  }
  char* data() const { return memory_.data(); }
  float* floats() const { return reinterpret_cast<float*>(data()); }

 private:
  static size_t nbytes(int64_t numel, DType dtype) { return static_cast<size_t>(numel) * nbytes_of(dtype); }
  DeviceMemory memory_;
};

class Bench {
 public:
  Bench() : other_(kOtherNumel, DType::f32, 1, false), sums_(kOtherNumel / kernels::kNormBlock * sizeof(double)) {
    for (Pair& pair : events_) {
      check(cudaEventCreate(&pair.begin));
      check(cudaEventCreate(&pair.end));
    }
    size_t total = 0;
    check(cudaMemGetInfo(&free_, &total));
    copy_gbps_ = gbps_of_copy(size_t{8} << 30);
    fmt::print("copy of 4 GiB: {:.0f} GB/s read and written\n\n", copy_gbps_);
    fmt::print("{:<44} {:>13} {:>10} {:>8} {:>8} {:>15}\n", "kernel", "elements", "us", "GB/s", "of copy",
               "of an equal copy");
  }
  ~Bench() {
    for (const Pair& pair : events_) {
      cudaEventDestroy(pair.begin);
      cudaEventDestroy(pair.end);
    }
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool fits(size_t nbytes) const { return nbytes < free_ / 10 * 9; }

  // `nbytes` is what the kernel reads and writes.
  void measure(const std::string& name, int64_t numel, size_t nbytes, const std::function<void()>& body) {
    const double us = median_us(body);
    const double gbps = static_cast<double>(nbytes) / us * 1e-3;
    const size_t alike = std::min(nbytes, size_t{8} << 30);  // larger copies run no faster
    fmt::print("{:<44} {:>13} {:>10.1f} {:>8.0f} {:>7.1f}% {:>14.1f}%\n", name, numel, us, gbps,
               100 * gbps / copy_gbps_, 100 * gbps / gbps_of_copy(alike));
    std::fflush(stdout);
  }
  double median_us(const std::function<void()>& body) {
    for (int i = 0; i < 3; ++i) body();
    for (const Pair& pair : events_) {
      kernels::cuda::sum_squares(other_.data(), DType::f32, kOtherNumel, 0, reinterpret_cast<double*>(sums_.data()),
                                 nullptr);
      check(cudaEventRecord(pair.begin));
      body();
      check(cudaEventRecord(pair.end));
    }
    check(cudaDeviceSynchronize());
    std::vector<float> times;
    for (const Pair& pair : events_) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, pair.begin, pair.end));
      times.push_back(ms * 1000);
    }
    std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
    return times[kRounds / 2];
  }

 private:
  struct Pair {
    cudaEvent_t begin, end;
  };
  // Of a copy that reads half of `nbytes` and writes the other half.
  double gbps_of_copy(size_t nbytes) {
    const DeviceMemory from(nbytes / 2), to(nbytes / 2);
    const double us = median_us(
        [&] { check(cudaMemcpyAsync(to.data(), from.data(), nbytes / 2, cudaMemcpyDeviceToDevice, nullptr)); });
    return static_cast<double>(nbytes) / us * 1e-3;
  }

  static constexpr int64_t kOtherNumel = 64 << 20;  // 256 MiB, several times the cache
  Array other_;
  DeviceMemory sums_;
  Pair events_[kRounds];
  size_t free_ = 0;
  double copy_gbps_ = 0;
};

// The arrays of an AdamW shard: bf16 with the split master, fp16 with a whole one, or fp32.
struct Shard {
  Shard(int64_t n, DType of_weights)
      : dtype(of_weights),
        numel(n),
        weight(n, dtype, 0.02f, false),
        master(dtype == DType::f32 ? 1 : n, dtype == DType::f16 ? DType::f32 : DType::bf16, 0.02f, false),
        grad(n + kVectorSlack, dtype, 1e-3f, false),
        first(n, DType::f32, 1e-3f, false),
        second(n, DType::f32, 1e-6f, true) {}

  // Parameters of `param_numel` elements one behind the other; grad_shift elements between alignments.
  SegmentTable cut(int64_t param_numel, int64_t grad_shift = 0) const {
    std::vector<kernels::Segment> segments;
    for (int64_t begin = 0; begin < numel; begin += param_numel) {
      const auto width = static_cast<int64_t>(nbytes_of(dtype));
      kernels::Segment s;
      s.numel = std::min(param_numel, numel - begin);
      s.weight = weight.data() + begin * width;
      s.weight_dtype = s.grad_dtype = dtype;
      if (dtype == DType::bf16) {
        s.master_kind = kernels::Master::remainder;
        s.master = master.data() + begin * width;
      } else if (dtype == DType::f16) {
        s.master_kind = kernels::Master::full;
        s.master = master.floats() + begin;
      }
      s.grad = grad.data() + (begin + grad_shift) * width;
      s.first = first.floats() + begin;
      s.second = second.floats() + begin;
      segments.push_back(s);
    }
    return SegmentTable(segments, std::vector<int>(segments.size(), 0));
  }
  static size_t resident_nbytes(int64_t numel) { return static_cast<size_t>(numel) * 16; }
  // The gradient is read, the rest read and written; but the weight of fp16 is only written.
  size_t moved_nbytes() const { return static_cast<size_t>(numel) * (dtype == DType::bf16 ? 26 : 28); }

  static constexpr int64_t kVectorSlack = 4;
  DType dtype;
  int64_t numel;
  Array weight, master, grad, first, second;
};

void bench_update(Bench& bench, int64_t most) {
  const kernels::AdamStep step{.lr = 1e-5f, .weight_decay = 0.1f, .inv_bias1 = 2, .inv_sqrt_bias2 = 3};
  const DeviceMemory steps(sizeof step), apply(sizeof(int));
  const int one = 1;
  check(cudaMemcpy(steps.data(), &step, sizeof step, cudaMemcpyHostToDevice));
  check(cudaMemcpy(apply.data(), &one, sizeof one, cudaMemcpyHostToDevice));
  const auto run = [&](const Shard& shard, const SegmentTable& table, const std::string& what) {
    bench.measure(fmt::format("adamw {}{}", name_of(shard.dtype), what), shard.numel, shard.moved_nbytes(), [&] {
      kernels::cuda::update(table, reinterpret_cast<const kernels::AdamStep*>(steps.data()),
                            reinterpret_cast<const int*>(apply.data()), nullptr);
    });
  };
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const int64_t numel : {kMillion, 10 * kMillion, 100 * kMillion, 1000 * kMillion}) {
      if (numel > most) continue;
      if (!bench.fits(Shard::resident_nbytes(numel))) {
        fmt::print("adamw of {} elements: left out, it does not fit\n", numel);
        continue;
      }
      const Shard shard(numel, dtype);
      run(shard, shard.cut(numel), "");
      if (dtype != DType::bf16) continue;
      run(shard, shard.cut(1000), ", parameters of 1000");
      run(shard, shard.cut(1001), ", parameters of 1001, unaligned");
      run(shard, shard.cut(65'537), ", parameters of 65537, unaligned");
      run(shard, shard.cut(numel, 1), ", gradient aligned apart");
    }
  }
}

// The optimizers with one state, in bf16 with the split master: 18 bytes an element.
void bench_other_updates(Bench& bench, int64_t most) {
  const auto run = [&](const char* name, const auto& step) {
    const DeviceMemory steps(sizeof step);
    check(cudaMemcpy(steps.data(), &step, sizeof step, cudaMemcpyHostToDevice));
    const auto* placed = reinterpret_cast<decltype(&step)>(steps.data());
    for (const int64_t numel : {10 * kMillion, 100 * kMillion}) {
      if (numel > most) continue;
      if (!bench.fits(Shard::resident_nbytes(numel))) {
        fmt::print("{} of {} elements: left out, it does not fit\n", name, numel);
        continue;
      }
      const Shard shard(numel, DType::bf16);
      for (const int64_t param_numel : {numel, int64_t{1000}}) {
        const SegmentTable table = shard.cut(param_numel);
        bench.measure(fmt::format("{} bf16{}", name, param_numel == numel ? "" : ", parameters of 1000"), numel,
                      static_cast<size_t>(numel) * 18, [&] { kernels::cuda::update(table, placed, nullptr, nullptr); });
      }
    }
  };
  run("sgd with momentum", kernels::SgdStep{.lr = 1e-5f, .momentum = 0.9f});
  run("adagrad", kernels::AdagradStep{.lr = 1e-5f});
  run("lion", kernels::LionStep{.lr = 1e-5f, .weight_decay = 0.1f});
}

void bench_reduce(Bench& bench, int64_t most) {
  for (const int64_t numel : {10 * kMillion, 400 * kMillion}) {
    if (numel > most) continue;
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const Array values(numel, dtype, 1e-3f, false);
      const auto blocks = static_cast<size_t>((numel + kernels::kNormBlock - 1) / kernels::kNormBlock);
      const DeviceMemory sums((blocks + kBlockLevel) * sizeof(double));
      const auto moved = static_cast<size_t>(numel) * nbytes_of(dtype) + blocks * sizeof(double);
      bench.measure(fmt::format("sum_squares {}", name_of(dtype)), numel, moved, [&] {
        kernels::cuda::sum_squares(values.data(), dtype, numel, 0, reinterpret_cast<double*>(sums.data()), nullptr);
      });
    }
    for (const DType out_dtype : {DType::bf16, DType::f32}) {
      const Array source(numel, DType::bf16, 1e-3f, false), out(numel, out_dtype, 1e-3f, false);
      std::deque<Array> more;
      std::vector<const void*> sources = {source.data()};
      for (int k = 1; k < 8; ++k) sources.push_back(more.emplace_back(numel, DType::bf16, 1e-3f, false).data());
      for (const int count : {1, 2, 4, 8}) {
        const kernels::OrderedFold fold{.sources = sources.data(),
                                        .source_count = count,
                                        .source_dtype = DType::bf16,
                                        .out = out.data(),
                                        .out_dtype = out_dtype,
                                        .rounding = out_dtype,
                                        .numel = numel,
                                        .post = 1.0f / static_cast<float>(count)};
        const auto moved = static_cast<size_t>(numel) * (2 * static_cast<size_t>(count) + nbytes_of(out_dtype));
        bench.measure(fmt::format("ordered_fold of {} bf16 to {}", count, name_of(out_dtype)), numel, moved,
                      [&] { kernels::cuda::ordered_fold(fold, nullptr); });
      }
    }
  }
}

void bench_convert(Bench& bench, int64_t most) {
  const int64_t numel = std::min(most, 400 * kMillion);
  const Array wide(numel, DType::f32, 1, false), narrow(numel, DType::bf16, 1, false),
      rest(numel, DType::bf16, 1, false);
  const auto nbytes = [&](size_t of_element) { return static_cast<size_t>(numel) * of_element; };
  bench.measure("convert fp32 to bf16", numel, nbytes(6),
                [&] { kernels::cuda::convert(wide.data(), DType::f32, narrow.data(), DType::bf16, numel, nullptr); });
  bench.measure("convert bf16 to fp32", numel, nbytes(6),
                [&] { kernels::cuda::convert(narrow.data(), DType::bf16, wide.data(), DType::f32, numel, nullptr); });
  bench.measure("convert bf16 to fp16", numel, nbytes(4),
                [&] { kernels::cuda::convert(narrow.data(), DType::bf16, rest.data(), DType::f16, numel, nullptr); });
  bench.measure("add bf16 to fp32", numel, nbytes(10),
                [&] { kernels::cuda::add(narrow.data(), DType::bf16, wide.data(), DType::f32, numel, nullptr); });
  bench.measure("split", numel, nbytes(8),
                [&] { kernels::cuda::split(wide.floats(), narrow.data(), rest.data(), numel, nullptr); });
  bench.measure("join", numel, nbytes(8),
                [&] { kernels::cuda::join(narrow.data(), rest.data(), wide.floats(), numel, nullptr); });
}

// 64 MiB of elements, as blocks and back; sums in fp32 become blocks where they are, and weights come out of them so.
void bench_blocks(Bench& bench) {
  constexpr int64_t kNbytes = int64_t{64} << 20;
  for (const int bits : {8, 4}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const int64_t numel = kNbytes / static_cast<int64_t>(nbytes_of(dtype));
      const size_t packed = Wire{dtype, bits}.nbytes(numel), moved = kNbytes + packed;
      const Array values(numel, dtype, 1, false);
      const DeviceMemory blocks(packed);
      const auto name = [&](const char* what) {
        return fmt::format("{} {} int{}, 64 MiB", what, name_of(dtype), bits);
      };
      bench.measure(name("quantize"), numel, moved,
                    [&] { kernels::cuda::quantize(values.data(), dtype, numel, bits, blocks.data(), nullptr); });
      bench.measure(name("dequantize"), numel, moved,
                    [&] { kernels::cuda::dequantize(blocks.data(), bits, values.data(), dtype, numel, nullptr); });
      // Again and again, what the memory has then is as good as any.
      bench.measure(name("dequantize in place"), numel, moved, [&] {
        kernels::cuda::dequantize(values.data() + kNbytes - packed, bits, values.data(), dtype, numel, nullptr);
      });
      if (dtype != DType::f32) continue;
      bench.measure(name("quantize in place"), numel, moved,
                    [&] { kernels::cuda::quantize(values.data(), dtype, numel, bits, values.data(), nullptr); });
      const Array sums(numel, DType::f32, 1, false), errors(numel, DType::bf16, 0.01f, false);
      bench.measure(name("quantize with errors"), numel, moved + static_cast<size_t>(numel) * 4, [&] {
        kernels::cuda::quantize_with_errors(sums.floats(), numel, bits, blocks.data(), {errors.data(), 0.8f, false},
                                            nullptr);
      });
      constexpr int kSlices = 4;
      const DeviceMemory slices(kSlices * packed);
      for (size_t slice = 0; slice < kSlices; ++slice) {
        kernels::cuda::quantize(sums.data(), dtype, numel, bits, slices.data() + slice * packed, nullptr);
      }
      kernels::BlockFold fold{.slices = slices.data(), .slice_nbytes = packed, .bits = bits, .fold = {}};
      fold.fold.source_count = kSlices;
      fold.fold.out = values.data();
      fold.fold.numel = numel;
      bench.measure(name("fold of 4"), numel, kNbytes + kSlices * packed,
                    [&] { kernels::cuda::fold_blocks(fold, nullptr); });
    }
  }
}

// The blocks of a billion elements, as one flat.
void bench_sum_pieces(Bench& bench) {
  constexpr int64_t kRuns = 1000 * kMillion / kRunNumel;
  const int64_t pieces = piece_count(0, kRuns);
  const DeviceMemory values(static_cast<size_t>(pieces) * sizeof(double)), ranges(sizeof(kernels::PieceSums)),
      tops(kMostTops * sizeof(double));
  check(cudaMemset(values.data(), 0, static_cast<size_t>(pieces) * sizeof(double)));
  const kernels::PieceSums range{reinterpret_cast<const double*>(values.data()), 0, kRuns,
                                 reinterpret_cast<double*>(tops.data())};
  check(cudaMemcpy(ranges.data(), &range, sizeof range, cudaMemcpyHostToDevice));
  const double us = bench.median_us(
      [&] { kernels::cuda::sum_pieces(reinterpret_cast<const kernels::PieceSums*>(ranges.data()), 1, nullptr); });
  fmt::print("sum_pieces of {} values: {:.1f} us\n", pieces, us);
}

int run(int argc, char** argv) {
  int64_t most = 1000 * kMillion;
  if (argc == 3 && std::strcmp(argv[1], "--most") == 0) {
    most = std::stoll(argv[2]);
  } else if (argc != 1) {
    fmt::print(stderr, "usage: bench_cuda_kernels [--most elements]\n");
    return 2;
  }
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0));
  fmt::print("{}, {} multiprocessors\n", device.name, device.multiProcessorCount);
  Bench bench;
  bench_update(bench, most);
  bench_other_updates(bench, most);
  bench_reduce(bench, most);
  bench_convert(bench, most);
  bench_blocks(bench);
  bench_sum_pieces(bench);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  try {
    return shoal::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
