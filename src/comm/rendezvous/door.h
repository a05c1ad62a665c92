// Whether ranks could reach each other, asked when they could not be connected: a transport that connects says neither
// to whom nor why not. Each rank keeps a door open until all are connected, a port that listens and does no more, and
// tells the others where it is.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace shoal {

class Door {
 public:
  // At any free port of that address of this host. Where that cannot be opened, at() is empty.
  explicit Door(const std::string& address);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  // "10.0.0.1:43211", "[fe80::1]:43211".
  const std::string& at() const { return at_; }

 private:
  int fd_ = -1;
  std::string at_;
};

// For each door why it cannot be reached from `address` of this host, in words: "no answer within 2 s", "Connection
// refused"; "" where it can, or is not known. All are tried at a time.
std::vector<std::string> knock(const std::vector<std::string>& doors, const std::string& address,
                               std::chrono::milliseconds limit);

}  // namespace shoal
