// A KeyStore over c10d's stores, and the way to torchrun's or our own TCPStore. c10d waits for a server without a
// deadline; here every call has one (see timed_calls.h).
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <memory>
#include <string>

#include "comm/rendezvous/key_store.h"
#include "comm/rendezvous/timed_calls.h"
#include "shoal/group.h"

namespace c10d {
class Store;
}

namespace shoal {

class C10dStore final : public KeyStore {
 public:
  // `calls` is shared by the stores of one client, as is the client itself.
  C10dStore(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<TimedCalls> calls, Timeout limit);
  ~C10dStore() override;
  void set(const std::string& key, const std::string& value) override;
  std::string set_once(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key, Timeout limit = Timeout::max()) override;

  // The part of the store under a prefix, through the same client.
  std::shared_ptr<C10dStore> under(const std::string& prefix) const;
  // The same store with another limit on how long a call waits for the server.
  std::shared_ptr<C10dStore> within(Timeout limit) const;
  // The part under a prefix, through a client of its own: a client is locked while it waits for a key. May block for
  // ever where the server hangs.
  c10::intrusive_ptr<c10d::Store> client_under(const std::string& prefix) const;

 private:
  template <class Call>
  auto through(Call call, Timeout limit = Timeout::max()) const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<TimedCalls> calls_;
  Timeout limit_;
};

struct TcpStoreOptions {
  std::string host;
  int port = 0;
  bool serve = false;  // rank 0 of a world that no launcher serves a store for
  Timeout timeout = kDefaultTimeout;
  std::string place;              // for messages: "comm rank 1"
  std::string server = "rank 0";  // who serves the store, for messages
};

// Throws shoal::Error when the server does not come or does not answer, or the port is taken. Calls through the store
// then have the same timeout as their limit.
std::shared_ptr<C10dStore> connect_tcp_store(const TcpStoreOptions& options);

// A store in the memory of this process, for tests with ranks as threads.
std::shared_ptr<C10dStore> make_hash_store();

// The message of an exception of torch, without its backtrace.
std::string short_what(const std::exception& error);

}  // namespace shoal
