// See csv_log.h.
#include "train/csv_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "shoal/error.h"
#include "train/append_whole.h"

namespace shoal::train {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why, const char* remedy = "") {
  throw Error("log csv", fmt::format("{} cannot be written: {}.{}", path, why, remedy));
}

// The step of a row, or nothing: the header, a row that somebody else wrote.
std::optional<int64_t> step_of_row(const std::string& row) {
  int64_t step = 0;
  const auto [end, failed] = std::from_chars(row.data(), row.data() + row.size(), step);
  if (failed != std::errc() || end == row.data() + row.size() || *end != ',') return std::nullopt;
  return step;
}

}  // namespace

std::string python_text(double number) {
  if (std::isnan(number)) return "nan";
  std::string text = fmt::format("{}", number);
  const bool is_whole = text.find_first_not_of("-0123456789") == std::string::npos;
  return is_whole ? text + ".0" : text;
}

CsvLog::CsvLog(std::string folder, std::optional<int64_t> resumed_at)
    : folder_(std::move(folder)), resumed_at_(resumed_at) {
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  if (!failed && ::access(folder_.c_str(), W_OK | X_OK) != 0) failed = {errno, std::generic_category()};
  if (failed) refuse(folder_, failed.message(), " Give another folder.");
}

void CsvLog::drop_later_rows(const std::string& path) const {
  std::error_code absent;
  if (!std::filesystem::is_regular_file(path, absent)) return;  // not there, or a pipe, which keeps nothing
  std::ifstream file(path, std::ios::binary);
  std::string kept;
  for (std::string row; std::getline(file, row) && !file.eof();) {
    if (step_of_row(row).value_or(0) <= *resumed_at_) kept += row + "\n";
  }
  file.close();
  std::error_code failed;
  if (std::filesystem::file_size(path, failed) == kept.size() || failed) return;
  const std::string beside = path + ".new";
  std::ofstream(beside, std::ios::binary) << kept;
  if (std::filesystem::file_size(beside, failed) != kept.size() || failed) refuse(path, "the disk may be full");
  std::filesystem::rename(beside, path, failed);
  if (failed) refuse(path, failed.message());
}

void CsvLog::add(const std::string& name, int64_t step, double value) {
  std::string file = name;
  std::replace_if(
      file.begin(), file.end(), [](char c) { return c == '/' || c == ' '; }, '_');
  const std::string path = folder_ + "/" + file + ".csv";
  if (resumed_at_ && !begun_.contains(name)) drop_later_rows(path);
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) refuse(path, std::strerror(errno));
  struct stat there {};
  const bool is_new = ::fstat(fd, &there) == 0 && there.st_size == 0;
  const std::string header = is_new ? fmt::format("step,{}\r\n", name.substr(name.rfind('/') + 1)) : "";
  const int reason = append_whole(fd, fmt::format("{}{},{}\r\n", header, step, python_text(value)));
  ::close(fd);
  if (reason != 0) refuse(path, std::strerror(reason));
  begun_.insert(name);
}

}  // namespace shoal::train
