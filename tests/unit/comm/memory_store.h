// A KeyStore in this process's memory, for tests that play ranks as threads. gone() makes it fail as a dead server.
#pragma once

#include <map>
#include <mutex>

#include "comm/rendezvous/key_store.h"
#include "shoal/error.h"

namespace shoal::testing {

class MemoryStore final : public KeyStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    if (gone_) throw Error(kStorePlace, "the store is gone");
    values_[key] = value;
  }
  std::string set_once(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    if (gone_) throw Error(kStorePlace, "the store is gone");
    return values_.emplace(key, value).first->second;
  }
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds = {}) override {
    const std::lock_guard lock(mutex_);
    if (gone_) throw Error(kStorePlace, "the store is gone");
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }
  void gone() {
    const std::lock_guard lock(mutex_);
    gone_ = true;
  }

 private:
  std::mutex mutex_;
  bool gone_ = false;
  std::map<std::string, std::string> values_;
};

}  // namespace shoal::testing
