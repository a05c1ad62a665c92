// The fused AdamW against the machine's own roof: a plain loop that reads and writes the same arrays and computes next
// to nothing. Both run on the same memory, in alternating rounds.
//
//   bench_adamw                 prints a table for 1, 16 and 64 Mi elements on 1 and 2 threads
//   bench_adamw --rounds 3 --numel 1048576 --threads 1
//   bench_adamw --serve         measures what its input asks for, line by line: adamw_peers.py uses it, to put the
//                               peers' rounds between ours
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "base/check.h"
#include "kernels/isa.h"
#include "kernels/update.h"

namespace shoal {
namespace {

// Which arrays a step touches. bf16: gradient, weight and remainder of 16 bits, fp32 moments. fp32: fp32 throughout.
enum class Form { bf16, fp32 };

int64_t nbytes_read(Form form) { return form == Form::bf16 ? 2 + 2 + 2 + 4 + 4 : 4 + 4 + 4 + 4; }
int64_t nbytes_written(Form form) { return form == Form::bf16 ? 2 + 2 + 4 + 4 : 4 + 4 + 4; }

// Zeroed memory in large pages, as the engine's slabs are. `place` staggers arrays, so that equal indices of different
// arrays do not meet in one set of the cache.
template <class T>
class Array {
 public:
  Array(int64_t numel, int place) : nbytes_((numel * sizeof(T) + place * kStagger + kPage) / kPage * kPage) {
    void* memory = mmap(nullptr, nbytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SHOAL_CHECK(memory != MAP_FAILED, "({} bytes)", nbytes_);
    madvise(memory, nbytes_, MADV_HUGEPAGE);
    base_ = static_cast<char*>(memory);
    data_ = reinterpret_cast<T*>(base_ + place * kStagger);
  }
  ~Array() { munmap(base_, nbytes_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* data() { return data_; }

 private:
  static constexpr size_t kPage = 2 << 20, kStagger = 4096 + 256;
  size_t nbytes_;
  char* base_;
  T* data_;
};

struct Memory {
  Memory(Form f, int64_t n)
      : form(f),
        numel(n),
        half_grad(f == Form::bf16 ? n : 0, 0),
        half_weight(f == Form::bf16 ? n : 0, 1),
        remainder(f == Form::bf16 ? n : 0, 2),
        grad(f == Form::fp32 ? n : 0, 0),
        weight(f == Form::fp32 ? n : 0, 1),
        first(n, 3),
        second(n, 4) {
    for (int64_t i = 0; i < n; ++i) {
      const float g = static_cast<float>((i * 2654435761u) & 0xffff) * 0x1p-20f - 0x1p-5f;
      if (form == Form::bf16) half_grad.data()[i] = kernels::split_weight(g);
      if (form == Form::fp32) grad.data()[i] = g;
      second.data()[i] = 1e-4f;
    }
  }

  Form form;
  int64_t numel;
  Array<uint16_t> half_grad, half_weight, remainder;
  Array<float> grad, weight, first, second;
};

using Pass = void (*)(Memory&, int64_t begin, int64_t end);

void shoal_pass(Memory& m, int64_t begin, int64_t end) {
  kernels::Segment s{.numel = end - begin, .first = m.first.data() + begin, .second = m.second.data() + begin};
  if (m.form == Form::bf16) {
    s.weight = m.half_weight.data() + begin;
    s.weight_dtype = DType::bf16;
    s.master_kind = kernels::Master::remainder;
    s.master = m.remainder.data() + begin;
    s.grad = m.half_grad.data() + begin;
    s.grad_dtype = DType::bf16;
  } else {
    s.weight = m.weight.data() + begin;
    s.grad = m.grad.data() + begin;
  }
  kernels::update(
      s, kernels::AdamStep{
             .grad_scale = 0.5f, .lr = 1e-4f, .weight_decay = 0.01f, .inv_bias1 = 1.5f, .inv_sqrt_bias2 = 3.0f});
}

// Lets the compiler use the widest vectors of the machine for the roof too; on aarch64 it does so anyway.
#ifdef __x86_64__
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif

// The roof: every array is read, and those that a step writes are written; one addition each.
WIDEST void roof_bf16(const uint16_t* __restrict grad, uint16_t* __restrict weight, uint16_t* __restrict remainder,
                      float* __restrict first, float* __restrict second, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    weight[i] = static_cast<uint16_t>(weight[i] + grad[i]);
    remainder[i] = static_cast<uint16_t>(remainder[i] + grad[i]);
    first[i] += 1.0f;
    second[i] += 1.0f;
  }
}
WIDEST void roof_fp32(const float* __restrict grad, float* __restrict weight, float* __restrict first,
                      float* __restrict second, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    weight[i] += grad[i];
    first[i] += 1.0f;
    second[i] += 1.0f;
  }
}
void roof_pass(Memory& m, int64_t begin, int64_t end) {
  float *first = m.first.data() + begin, *second = m.second.data() + begin;
  if (m.form == Form::bf16) {
    roof_bf16(m.half_grad.data() + begin, m.half_weight.data() + begin, m.remainder.data() + begin, first, second,
              end - begin);
  } else {
    roof_fp32(m.grad.data() + begin, m.weight.data() + begin, first, second, end - begin);
  }
}

// Seconds of one pass, the mean of `passes` back to back, the span cut evenly over the threads.
double measure(Memory& memory, Pass pass, int thread_count, int passes) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin, end;
  std::barrier<> line(thread_count);
  const auto work = [&](int t) {
    const int64_t from = memory.numel * t / thread_count, to = memory.numel * (t + 1) / thread_count;
    line.arrive_and_wait();
    if (t == 0) begin = Clock::now();
    for (int i = 0; i < passes; ++i) {
      pass(memory, from, to);
      line.arrive_and_wait();
    }
    if (t == 0) end = Clock::now();
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < thread_count; ++t) threads.emplace_back(work, t);
  work(0);
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(end - begin).count() / passes;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int passes_for(int64_t numel) { return static_cast<int>(std::max<int64_t>(1, (int64_t{32} << 20) / numel)); }

// Lines "bf16|fp32 shoal|roof numel threads passes" in, seconds of a pass out. Memory is kept between equal requests.
int serve() {
  fmt::print("{}\n", kernels::isa_name(kernels::active_kernels().isa));
  std::cout.flush();
  std::unique_ptr<Memory> memory;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string form_name, what;
    int64_t numel = 0;
    int thread_count = 0, passes = 0;
    words >> form_name >> what >> numel >> thread_count >> passes;
    SHOAL_CHECK(words && numel > 0 && thread_count > 0 && passes > 0, "(request \"{}\")", line);
    const Form form = form_name == "bf16" ? Form::bf16 : Form::fp32;
    if (!memory || memory->form != form || memory->numel != numel) {
      memory.reset();
      memory = std::make_unique<Memory>(form, numel);
    }
    fmt::print("{:.9f}\n", measure(*memory, what == "roof" ? roof_pass : shoal_pass, thread_count, passes));
    std::fflush(stdout);
  }
  return 0;
}

struct Options {
  int rounds = 9;
  std::vector<int64_t> numels = {1 << 20, 16 << 20, 64 << 20};
  std::vector<int> threads = {1, 2};
};

void print_table(const Options& options) {
  fmt::print("version: {}\n\n", kernels::isa_name(kernels::active_kernels().isa));
  fmt::print("| form | elements | threads | roof GB/s | shoal GB/s | of the roof | M elements/s |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const Form form : {Form::bf16, Form::fp32}) {
    for (const int64_t numel : options.numels) {
      Memory memory(form, numel);
      for (const int thread_count : options.threads) {
        std::vector<double> roof, ours;
        for (int round = 0; round <= options.rounds; ++round) {
          const double r = measure(memory, roof_pass, thread_count, passes_for(numel));
          const double s = measure(memory, shoal_pass, thread_count, passes_for(numel));
          if (round == 0) continue;  // warms the caches and the clock
          roof.push_back(r);
          ours.push_back(s);
        }
        const double nbytes = static_cast<double>(numel * (nbytes_read(form) + nbytes_written(form)));
        fmt::print("| {} | {} Mi | {} | {:.1f} | {:.1f} | {:.0f} % | {:.0f} |\n", form == Form::bf16 ? "bf16" : "fp32",
                   numel >> 20, thread_count, nbytes / median(roof) * 1e-9, nbytes / median(ours) * 1e-9,
                   100 * median(roof) / median(ours), static_cast<double>(numel) / median(ours) * 1e-6);
      }
    }
  }
}

int run(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i < words.size(); i += 2) {
    if (words[i] == "--serve") return serve();
    if (i + 1 == words.size() || (words[i] != "--rounds" && words[i] != "--numel" && words[i] != "--threads")) {
      fmt::print(stderr, "usage: bench_adamw [--serve] [--rounds N] [--numel N] [--threads N]\n");
      return 2;
    }
    const int64_t value = std::stoll(words[i + 1]);
    if (words[i] == "--rounds") options.rounds = static_cast<int>(value);
    if (words[i] == "--numel") options.numels = {value};
    if (words[i] == "--threads") options.threads = {static_cast<int>(value)};
  }
  print_table(options);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  try {
    return shoal::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
