// See c10d_store.h.
#include "comm/c10d_store.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "shoal/error.h"

namespace shoal {

namespace {

template <class Call>
auto through(const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw Error(kStorePlace, "the rendezvous store is gone: " + short_what(error));
  }
}

}  // namespace

std::string short_what(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

C10dStore::C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
C10dStore::~C10dStore() = default;

void C10dStore::set(const std::string& key, const std::string& value) {
  through([&] { store_->set(key, value); });
}

std::string C10dStore::set_once(const std::string& key, const std::string& value) {
  return through([&] { return store_->compareSet(key, std::string(), value); });
}

std::optional<std::string> C10dStore::get(const std::string& key) {
  return through([&]() -> std::optional<std::string> {
    if (!store_->check({key})) return std::nullopt;
    return store_->get_to_str(key);
  });
}

std::shared_ptr<C10dStore> C10dStore::under(const std::string& prefix) const {
  return std::make_shared<C10dStore>(c10::make_intrusive<c10d::PrefixStore>(prefix, store_));
}

c10::intrusive_ptr<c10d::Store> C10dStore::client_under(const std::string& prefix) const {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store_->clone());
}

std::shared_ptr<C10dStore> make_hash_store() {
  return std::make_shared<C10dStore>(c10::make_intrusive<c10d::HashStore>());
}

std::shared_ptr<C10dStore> connect_tcp_store(const TcpStoreOptions& options) {
  c10d::TCPStoreOptions tcp;
  tcp.port = static_cast<uint16_t>(options.port);
  tcp.isServer = options.serve;
  tcp.waitWorkers = false;  // who is missing is found, and named, by the caller
  tcp.multiTenant = true;   // several worlds in one process share the server
  tcp.timeout = options.timeout;
  try {
    return std::make_shared<C10dStore>(c10::make_intrusive<c10d::TCPStore>(options.host, tcp));
  } catch (const std::exception& error) {
    const std::string where = fmt::format("{}:{}", options.host, options.port);
    if (options.serve) {
      throw Error(options.place, fmt::format("cannot serve the rendezvous store at {}: {}. "
                                             "Set MASTER_PORT to a free port.",
                                             where, short_what(error)));
    }
    throw Error(options.place, fmt::format("no rendezvous store at {}: rank 0 did not come, or cannot be reached ({}). "
                                           "Check MASTER_ADDR, MASTER_PORT and rank 0's output.",
                                           where, short_what(error)));
  }
}

}  // namespace shoal
