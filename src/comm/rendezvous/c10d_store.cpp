// See c10d_store.h.
#include "comm/rendezvous/c10d_store.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cstdio>

#include "comm/rendezvous/store_socket.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// What c10d itself notices in time, it gets the time to say. A server that hangs it does not notice: the kernel takes
// connections for it.
constexpr Timeout kConnectGrace = std::chrono::milliseconds(1000);

}  // namespace

std::string short_what(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

C10dStore::C10dStore(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<TimedCalls> calls, Timeout limit)
    : store_(std::move(store)), calls_(std::move(calls)), limit_(limit) {}
C10dStore::~C10dStore() = default;

// The call holds copies of what it uses: it may go on when nobody waits for it any more.
template <class Call>
auto C10dStore::through(Call call, Timeout limit) const {
  const Timeout least = std::min(limit, limit_);
  try {
    return calls_->run(std::move(call), least);
  } catch (const TimedCalls::TimedOut&) {
    throw StoreSilent(least);
  } catch (const std::exception& error) {
    throw Error(kStorePlace, "the rendezvous store is gone: " + short_what(error));
  }
}

void C10dStore::set(const std::string& key, const std::string& value) {
  through([store = store_, key, value] { store->set(key, value); });
}

std::string C10dStore::set_once(const std::string& key, const std::string& value) {
  return through([store = store_, key, value] { return store->compareSet(key, std::string(), value); });
}

std::optional<std::string> C10dStore::get(const std::string& key, Timeout limit) {
  const auto read = [store = store_, key]() -> std::optional<std::string> {
    if (!store->check({key})) return std::nullopt;
    return store->get_to_str(key);
  };
  return through(read, limit);
}

std::shared_ptr<C10dStore> C10dStore::under(const std::string& prefix) const {
  return std::make_shared<C10dStore>(c10::make_intrusive<c10d::PrefixStore>(prefix, store_), calls_, limit_);
}

std::shared_ptr<C10dStore> C10dStore::within(Timeout limit) const {
  return std::make_shared<C10dStore>(store_, calls_, limit);
}

c10::intrusive_ptr<c10d::Store> C10dStore::client_under(const std::string& prefix) const {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store_->clone());
}

namespace {

// Nothing: c10d opens one by itself, on every address.
std::optional<int> listen_for(const TcpStoreOptions& options) {
  const StoreSocket socket = open_store_socket(options.host, options.port);
  if (!socket.why_none.empty()) {
    fmt::print(stderr, "shoal: the rendezvous store listens at port {} on every address: {} (docs/security.md)\n",
               options.port, socket.why_none);
  }
  return socket.fd >= 0 ? std::optional(socket.fd) : std::nullopt;
}

}  // namespace

std::shared_ptr<C10dStore> make_hash_store() {
  return std::make_shared<C10dStore>(c10::make_intrusive<c10d::HashStore>(), std::make_shared<TimedCalls>(),
                                     kDefaultTimeout);
}

std::shared_ptr<C10dStore> connect_tcp_store(const TcpStoreOptions& options) {
  c10d::TCPStoreOptions tcp;
  tcp.port = static_cast<uint16_t>(options.port);
  tcp.isServer = options.serve;
  tcp.waitWorkers = false;  // who is missing is found, and named, by the caller
  tcp.multiTenant = true;   // several worlds in one process share the server
  tcp.timeout = options.timeout;
  if (options.serve) tcp.masterListenFd = listen_for(options);
  const std::string where = fmt::format("{}:{}", options.host, options.port);
  auto calls = std::make_shared<TimedCalls>();
  try {
    auto store = calls->run([host = options.host, tcp] { return c10::make_intrusive<c10d::TCPStore>(host, tcp); },
                            options.timeout + kConnectGrace);
    return std::make_shared<C10dStore>(std::move(store), std::move(calls), options.timeout);
  } catch (const TimedCalls::TimedOut&) {
    throw Error(options.place, fmt::format("no rendezvous store at {} answered within {} s: {} did not come, hangs, or "
                                           "cannot be reached. Check MASTER_ADDR, MASTER_PORT and the output of {}.",
                                           where, std::chrono::duration<double>(options.timeout).count(),
                                           options.server, options.server));
  } catch (const std::exception& error) {
    if (options.serve) {
      throw Error(options.place, fmt::format("cannot serve the rendezvous store at {}: {}. "
                                             "Set MASTER_PORT to a free port.",
                                             where, short_what(error)));
    }
    throw Error(options.place, fmt::format("no rendezvous store at {}: {} did not come, or cannot be reached ({}). "
                                           "Check MASTER_ADDR, MASTER_PORT and the output of {}.",
                                           where, options.server, short_what(error), options.server));
  }
}

}  // namespace shoal
