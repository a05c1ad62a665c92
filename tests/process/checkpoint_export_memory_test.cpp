// An export needs memory for a few pieces, not for the model: a checkpoint of half a gibibyte goes out in a process
// that may take a quarter of that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>

#include "checkpoint/export_safetensors.h"
#include "checkpoint/save.h"
#include "shoal/group.h"
#include "temp_folder.h"

namespace shoal::checkpoint {
namespace {

namespace fs = std::filesystem;
using shoal::testing::TempFolder;

constexpr int64_t kParams = 8, kNumel = int64_t{16} << 20;
constexpr size_t kWeightsNbytes = kParams * kNumel * sizeof(float);
constexpr size_t kAllowedNbytes = kWeightsNbytes / 4;

float value_of(int param, int64_t element) { return static_cast<float>(param) + static_cast<float>(element % 1021); }

// Values are made as they are asked for: saving takes no memory either.
StateSource large_state() {
  StateSource source;
  for (int param = 0; param < kParams; ++param) {
    source.params.push_back({"layer" + std::to_string(param), {}, {kNumel / 1024, 1024}, "unit", DType::f32, true});
    source.runs.push_back({param, StateKind::weight, 0, kNumel});
  }
  source.read = [](const StateRun& part, float* values) {
    for (int64_t i = 0; i < part.numel; ++i) values[i] = value_of(part.param, part.begin + i);
  };
  source.weights_only = true;
  return source;
}

rlim_t address_space_nbytes() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

// In a process of its own, whose address space may grow by `allowed` bytes from here. 0, or what went wrong.
int in_little_memory(size_t allowed, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    mallopt(M_ARENA_MAX, 1);
    const rlim_t limit = address_space_nbytes() + allowed;
    const rlimit both{limit, limit};
    if (setrlimit(RLIMIT_AS, &both) != 0) _exit(2);
    // The limit holds: there is no room for the weights.
    if (mmap(nullptr, kWeightsNbytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) _exit(3);
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(4);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(ExportMemory, ACheckpointLargerThanMemoryExports) {
  const TempFolder temp;
  if (fs::space(temp.path()).available < 4 * kWeightsNbytes) GTEST_SKIP() << "no room on the disk: " << temp.path();
  const auto world = make_single_group();
  const std::string saved =
      save_state(large_state(), *world, {.folder = temp / "saved", .step = 1, .keep_last = 0, .extra = {}});
  EXPECT_EQ(in_little_memory(kAllowedNbytes,
                             [&] {
                               SafetensorsWriteOptions options;
                               options.dtype = DType::f32;
                               export_safetensors(saved, temp / "out", options);
                             }),
            0);
  ASSERT_GT(fs::file_size(temp / "out/model.safetensors"), kWeightsNbytes);
  const auto reader = SafetensorsReader::open(temp / "out");
  std::vector<float> values(1024);
  for (int param = 0; param < kParams; ++param) {
    const int64_t begin = kNumel - 1024;
    reader->read("layer" + std::to_string(param), begin, 1024, values.data());
    EXPECT_EQ(values.front(), value_of(param, begin));
    EXPECT_EQ(values.back(), value_of(param, kNumel - 1));
  }
}

}  // namespace
}  // namespace shoal::checkpoint
