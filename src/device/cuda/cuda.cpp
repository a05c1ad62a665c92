// See cuda.h.
#include "device/cuda.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "shoal/error.h"

namespace shoal::cuda {

namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // said here; the next launch is not to blame for it
  throw Error("cuda", fmt::format("{} failed: {} ({}).", call, cudaGetErrorString(status), cudaGetErrorName(status)));
}

cudaStream_t stream_of(StreamHandle handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

// A fork would copy pages that a device holds, all of them and at once: children go without this memory. Registering
// brings pages in too, on one thread. A system that does not know the advice leaves it to that.
void bring_pages_in(std::byte* memory, size_t nbytes) {
  constexpr size_t kPiece = size_t{64} << 20;
  madvise(memory, nbytes, MADV_DONTFORK);
  const size_t pieces = (nbytes + kPiece - 1) / kPiece;
  const size_t count = std::min<size_t>(pieces, std::max(1u, std::min(16u, std::thread::hardware_concurrency())));
  std::atomic<size_t> next = 0;
  const auto bring_in = [&] {
    for (size_t piece = next++; piece < pieces; piece = next++) {
      madvise(memory + piece * kPiece, std::min(kPiece, nbytes - piece * kPiece), MADV_POPULATE_WRITE);
    }
  };
  std::vector<std::thread> threads;
  try {
    for (size_t thread = 1; thread < count; ++thread) threads.emplace_back(bring_in);
  } catch (const std::system_error&) {  // there are no more threads: those that are there take it all
  }
  bring_in();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // it was asked, not failed
  return 0;
}

std::string why_none() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return "";
  cudaGetLastError();  // it was asked, not failed
  return status == cudaSuccess ? "the driver knows no GPU" : cudaGetErrorString(status);
}

Versions versions() {
  Versions found{0, CUDART_VERSION};
  if (cudaDriverGetVersion(&found.driver) != cudaSuccess) {
    cudaGetLastError();  // it was asked, not failed
    found.driver = 0;
  }
  return found;
}

DeviceFacts facts_of(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  DeviceFacts facts;
  facts.name = properties.name;
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.processors = properties.multiProcessorCount;
  int before = 0;
  check(cudaGetDevice(&before), "cudaGetDevice");
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaMemGetInfo(&facts.free_nbytes, &facts.total_nbytes), "cudaMemGetInfo");
  check(cudaSetDevice(before), "cudaSetDevice");
  return facts;
}

std::string identity_of(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::string text;
  for (const char byte : properties.uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

void use_device(int device) { check(cudaSetDevice(device), "cudaSetDevice"); }

void begin_watching(int device) {
  use_device(device);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
}

void* allocate(size_t nbytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, nbytes), "cudaMalloc");
  return memory;
}

void release(void* memory) { cudaFree(memory); }

void copy(void* to, const void* from, size_t nbytes, StreamHandle stream) {
  if (nbytes == 0) return;
  check(cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDefault, stream_of(stream)), "cudaMemcpyAsync");
}

void zero(void* memory, size_t nbytes, StreamHandle stream) {
  if (nbytes == 0) return;
  check(cudaMemsetAsync(memory, 0, nbytes, stream_of(stream)), "cudaMemsetAsync");
}

void synchronize(StreamHandle stream) { check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize"); }

void register_host(void* memory, size_t nbytes) {
  if (nbytes == 0) return;
  bring_pages_in(static_cast<std::byte*>(memory), nbytes);
  check(cudaHostRegister(memory, nbytes, cudaHostRegisterDefault), "cudaHostRegister");
}

void unregister_host(void* memory) {
  cudaHostUnregister(memory);
  cudaGetLastError();  // of memory that never was registered: no fault of the next call
}

bool is_on_gpu(const void* memory) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice;
}

Stream::Stream(Priority priority) {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority == Priority::high ? greatest : least),
        "cudaStreamCreateWithPriority");
  handle_ = stream;
}

Stream::~Stream() { cudaStreamDestroy(stream_of(handle_)); }

Event::Event(Kind kind) {
  cudaEvent_t event = nullptr;
  const unsigned flags = kind == Kind::timed ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  event_ = event;
}

Event::~Event() { cudaEventDestroy(event_of(event_)); }

void Event::record(StreamHandle stream) {
  check(cudaEventRecord(event_of(event_), stream_of(stream)), "cudaEventRecord");
}

void Event::hold_back(StreamHandle stream) const {
  check(cudaStreamWaitEvent(stream_of(stream), event_of(event_), 0), "cudaStreamWaitEvent");
}

bool Event::reached() const {
  const cudaError_t status = cudaEventQuery(event_of(event_));
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery");
  return true;
}

double Event::seconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, event_of(earlier.event_), event_of(event_)), "cudaEventElapsedTime");
  return milliseconds * 1e-3;
}

void Event::synchronize() const { check(cudaEventSynchronize(event_of(event_)), "cudaEventSynchronize"); }

PinnedMemory::PinnedMemory(size_t nbytes) { check(cudaMallocHost(&data_, nbytes), "cudaMallocHost"); }
PinnedMemory::~PinnedMemory() { cudaFreeHost(data_); }

}  // namespace shoal::cuda
