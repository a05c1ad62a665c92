// How bytes of numbered chunks move between host memory and a queue's memory beside the queue's own work: one stream
// each way. Where the memory is a GPU's, each call but the waits returns at once and order is kept on the device.
#pragma once

#include <cstddef>
#include <string>

namespace shoal {

class CopyStreams {
 public:
  virtual ~CopyStreams() = default;

  // From now on there are that many chunks, at least; those before keep their numbers.
  virtual void make_room(int chunks) = 0;

  // Makes host memory such that the copy streams need no help with it. Takes a while; may run in a thread of its own.
  // "", or why it cannot be done: then copies work and are slower.
  virtual std::string pin(std::byte* host, size_t nbytes) = 0;

  // The calling thread, which is another than this object's, will give copies and wait for them.
  virtual void enter_thread() {}

  // Copies that are given later begin when the queue has done what it was given so far.
  virtual void follow_queue() = 0;
  // The same in two: where the queue is now, and that copies which are given from then on wait for it.
  virtual void mark_queue() = 0;
  virtual void follow_mark() = 0;
  // Once the last copy_out of chunk `after` is through; -1: at once.
  virtual void copy_in(int chunk, std::byte* to, const std::byte* from_host, size_t nbytes, int after) = 0;
  // What the queue is given later finds the chunk's bytes.
  virtual void hold_queue(int chunk) = 0;
  // The queue will get nothing before the next hold_queue(): what it stands still counts from here.
  virtual void stop_queue() {}
  // No hold_queue() comes: it did not.
  virtual void forget_stop() {}
  // What the queue is given later comes after the chunk's last copy_out.
  virtual void hold_queue_out(int chunk) = 0;
  // The queue has no more work on the chunk than it was given so far.
  virtual void mark_used(int chunk) = 0;
  // After that work.
  virtual void copy_out(int chunk, std::byte* to_host, const std::byte* from, size_t nbytes) = 0;

  // Hold the calling thread until the chunk's last copy is through.
  virtual void wait_in(int chunk) = 0;
  virtual void wait_out(int chunk) = 0;
  // Holds the calling thread until the queue has done what it had to do when the chunk was marked.
  virtual void wait_used(int chunk) = 0;
  // How long the queue stood still for bytes where it has gone on since the last call. Waits for nothing.
  virtual double newly_held_seconds() = 0;
  // What it stands still for, as the log of waits calls it (base/wait_log.h). Until then it logs nothing.
  virtual void log_stalls_as(const std::string&) {}
};

}  // namespace shoal
