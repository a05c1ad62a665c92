// TensorBoard's event files, written without Python. Numbers only: each event is one scalar under one name.
//
//   file    := record*                                   the first: file_version "brain.Event:2"
//   record  := nbytes u64 | masked crc of it u32 | event | masked crc of it u32          all little-endian
//   event   := wall_time (1, f64) | step (2, varint)? | file_version (3, text) | summary (5) | session_log (7)
//   summary := value (1) := tag (1, text) | simple_value (2, f32)
//   session_log := status (1, varint)                    START, 1: what stands at this step and later is forgotten
//
// The events are protocol buffers: (n, type) is field n. crc is CRC-32C, masked as TFRecord does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shoal::train {

// The bytes of one record, and of the events in them.
std::string event_record(std::string_view event);
std::string version_event(double wall_time);
std::string scalar_event(double wall_time, int64_t step, const std::string& name, float value);
std::string restart_event(double wall_time, int64_t step);

class EventFile {
 public:
  // Makes the folder, and a file in it that no other run has: TensorBoard reads all files of a folder as one run.
  // Throws shoal::Error when it cannot.
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // From here on the steps from `step` on are taken again: readers forget what other files have of them.
  void restart_at(int64_t step);
  // The whole record or nothing. Throws shoal::Error when it cannot be written. What is not finite is written as it is.
  void add(const std::string& name, int64_t step, double value);

  const std::string& path() const { return path_; }

 private:
  void append(const std::string& event);

  std::string path_;
  int fd_ = -1;
};

}  // namespace shoal::train
