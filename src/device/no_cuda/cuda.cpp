// The door to the CUDA runtime in a build without CUDA; see cuda.h.
#include "device/cuda.h"

#include "shoal/error.h"

namespace shoal::cuda {

namespace {

constexpr const char* kWhy = "this build has no CUDA: nvcc was not found when it was configured";

[[noreturn]] void refuse() { throw Error("cuda", std::string(kWhy) + ". Build Shoal where the CUDA toolkit is."); }

}  // namespace

int device_count() { return 0; }
std::string why_none() { return kWhy; }
Versions versions() { return {}; }
DeviceFacts facts_of(int) { refuse(); }
std::string identity_of(int) { refuse(); }
void use_device(int) { refuse(); }
void begin_watching(int) { refuse(); }
void* allocate(size_t) { refuse(); }
void release(void*) {}
void copy(void*, const void*, size_t, StreamHandle) { refuse(); }
void zero(void*, size_t, StreamHandle) { refuse(); }
void synchronize(StreamHandle) { refuse(); }
void register_host(void*, size_t) { refuse(); }
void unregister_host(void*) {}
bool is_on_gpu(const void*) { return false; }

Stream::Stream(Priority) { refuse(); }
Stream::~Stream() = default;

Event::Event(Kind) { refuse(); }
Event::~Event() = default;
void Event::record(StreamHandle) { refuse(); }
void Event::hold_back(StreamHandle) const { refuse(); }
bool Event::reached() const { refuse(); }
void Event::synchronize() const { refuse(); }
double Event::seconds_since(const Event&) const { refuse(); }

PinnedMemory::PinnedMemory(size_t) { refuse(); }
PinnedMemory::~PinnedMemory() = default;

}  // namespace shoal::cuda
