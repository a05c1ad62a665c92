// A KeyStore over c10d's stores, and the way to torchrun's or our own TCPStore.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <memory>
#include <string>

#include "comm/key_store.h"
#include "shoal/group.h"

namespace c10d {
class Store;
}

namespace shoal {

class C10dStore final : public KeyStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store);
  ~C10dStore() override;
  void set(const std::string& key, const std::string& value) override;
  std::string set_once(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;

  // The part of the store under a prefix, through the same client.
  std::shared_ptr<C10dStore> under(const std::string& prefix) const;
  // The same through a client of its own: a client is locked while it waits for a key.
  c10::intrusive_ptr<c10d::Store> client_under(const std::string& prefix) const;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

struct TcpStoreOptions {
  std::string host;
  int port = 0;
  bool serve = false;  // rank 0 of a world that no launcher serves a store for
  Timeout timeout = kDefaultTimeout;
  std::string place;  // for messages: "comm rank 1"
};

// Throws shoal::Error when the server does not come, or the port is taken.
std::shared_ptr<C10dStore> connect_tcp_store(const TcpStoreOptions& options);

// A store in the memory of this process, for tests with ranks as threads.
std::shared_ptr<C10dStore> make_hash_store();

// The message of an exception of torch, without its backtrace.
std::string short_what(const std::exception& error);

}  // namespace shoal
