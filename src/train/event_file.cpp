// See event_file.h.
#include "train/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/crc32c.h"
#include "base/unix_time.h"
#include "shoal/error.h"
#include "train/append_whole.h"

namespace shoal::train {

namespace {

enum class WireType : uint8_t { varint = 0, fixed64 = 1, nbytes = 2, fixed32 = 5 };

template <typename Unsigned>
std::string little_endian(Unsigned number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Unsigned); ++i) bytes += static_cast<char>((number >> (8 * i)) & 0xff);
  return bytes;
}

std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
  return bytes += static_cast<char>(number);
}

std::string field(int number, WireType type, const std::string& payload) {
  return varint(static_cast<uint64_t>(number) << 3 | static_cast<uint64_t>(type)) + payload;
}

std::string text_field(int number, const std::string& text) {
  return field(number, WireType::nbytes, varint(text.size()) + text);
}

std::string wall_time_field(double seconds) {
  return field(1, WireType::fixed64, little_endian(std::bit_cast<uint64_t>(seconds)));
}

// As protobuf writes it: 0, the default, is left out.
std::string step_field(int64_t step) {
  return step == 0 ? "" : field(2, WireType::varint, varint(static_cast<uint64_t>(step)));
}

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace

std::string event_record(std::string_view event) {
  const std::string nbytes = little_endian(static_cast<uint64_t>(event.size()));
  return nbytes + little_endian(masked_crc(nbytes)) + std::string(event) + little_endian(masked_crc(event));
}

std::string version_event(double wall_time) { return wall_time_field(wall_time) + text_field(3, "brain.Event:2"); }

std::string scalar_event(double wall_time, int64_t step, const std::string& name, float value) {
  const std::string number = field(2, WireType::fixed32, little_endian(std::bit_cast<uint32_t>(value)));
  const std::string summary = text_field(1, text_field(1, name) + number);
  return wall_time_field(wall_time) + step_field(step) + text_field(5, summary);
}

std::string restart_event(double wall_time, int64_t step) {
  return wall_time_field(wall_time) + step_field(step) + text_field(7, field(1, WireType::varint, varint(1)));
}

EventFile::EventFile(const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const double begin = unix_seconds();
  // Readers take the files of a folder in the order of their names, and the number behind "tfevents" for seconds.
  for (int attempt = 0; !failed && fd_ < 0; ++attempt) {
    path_ = fmt::format("{}/events.out.tfevents.{:010d}.{}.{}.{}", folder, static_cast<int64_t>(begin), host_name(),
                        ::getpid(), attempt);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) failed = {errno, std::generic_category()};
  }
  if (failed) {
    throw Error("log tensorboard",
                fmt::format("{} cannot be written: {}. Give another folder.", folder, failed.message()));
  }
  append(version_event(begin));
}

EventFile::~EventFile() { ::close(fd_); }

void EventFile::restart_at(int64_t step) { append(restart_event(unix_seconds(), step)); }

void EventFile::add(const std::string& name, int64_t step, double value) {
  append(scalar_event(unix_seconds(), step, name, static_cast<float>(value)));
}

void EventFile::append(const std::string& event) {
  if (const int reason = append_whole(fd_, event_record(event)); reason != 0) {
    throw Error("log tensorboard", fmt::format("{} cannot be written: {}.", path_, std::strerror(reason)));
  }
}

}  // namespace shoal::train
