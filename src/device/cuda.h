// The door to the CUDA runtime: GPUs, memory, streams and events. Nothing else in src/ but the kernels calls the
// runtime. In a build without CUDA there are no GPUs and every other call throws; see cmake/Cuda.cmake for how a build
// chooses.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace shoal::cuda {

using StreamHandle = void*;  // a cudaStream_t; null is the legacy default stream

// 0 where there is no GPU to use; why_none() then says why.
int device_count();
std::string why_none();

// The newest CUDA that the driver runs and the CUDA that this build was made with, as 1000 * major + 10 * minor; 0
// where there is no driver, or no CUDA in the build.
struct Versions {
  int driver = 0, build = 0;
};
Versions versions();

// What a user is told of a GPU.
struct DeviceFacts {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  size_t total_nbytes = 0;
  size_t free_nbytes = 0;
  int processors = 0;
};
DeviceFacts facts_of(int device);
// The same text for the same GPU in every process and on every host, and for no other.
std::string identity_of(int device);

// Makes the GPU the calling thread's current one: launches and allocations go there.
void use_device(int device);
// The same for a thread that only asks for events, now and then: a capture of a graph in another thread, which forbids
// most calls elsewhere, is not disturbed.
void begin_watching(int device);

void* allocate(size_t nbytes);  // on the current GPU; throws shoal::Error
void release(void* memory);     // waits for what uses it

// Asynchronous to the host where host memory is registered, else the runtime may block.
void copy(void* to, const void* from, size_t nbytes, StreamHandle stream);
void zero(void* memory, size_t nbytes, StreamHandle stream);
// Holds the calling thread until the stream has done all it was given.
void synchronize(StreamHandle stream);

// Lets the GPU copy from and to this host memory by itself, at full speed and beside the host; its pages are brought in
// first, on several threads. The memory's contents stay. It begins at a page; child processes do not have it.
void register_host(void* memory, size_t nbytes);
void unregister_host(void* memory);
// Whether it is memory of a GPU.
bool is_on_gpu(const void* memory);

// A stream of the current GPU, apart from the default one.
class Stream {
 public:
  enum class Priority { normal, high };
  explicit Stream(Priority priority = Priority::normal);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamHandle handle() const { return handle_; }

 private:
  StreamHandle handle_ = nullptr;
};

// A point in a stream's work.
class Event {
 public:
  enum class Kind { plain, timed };
  explicit Event(Kind kind = Kind::plain);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // The point is after everything that the stream was given so far. May be called again.
  void record(StreamHandle stream);
  // `stream` runs nothing that it is given later before the recorded point is reached. The host does not wait.
  void hold_back(StreamHandle stream) const;
  // Whether the point is reached; throws what went wrong on the GPU.
  bool reached() const;
  // Holds the calling thread until the point is reached.
  void synchronize() const;
  // The time from another point to this one, both timed and reached.
  double seconds_since(const Event& earlier) const;

 private:
  void* event_ = nullptr;
};

// Host memory that the GPU copies from and to without the host's help. Small: for numbers of a step.
class PinnedMemory {
 public:
  explicit PinnedMemory(size_t nbytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace shoal::cuda
