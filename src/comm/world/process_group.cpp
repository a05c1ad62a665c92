// make_process_group: reads the environment, meets the other ranks at the store, and chooses the transport: shared
// memory when every rank can open every other's memory, Gloo otherwise.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "base/text.h"
#include "comm/host/board_carrier.h"
#include "comm/host/gloo_carrier.h"
#include "comm/host/shm_board.h"
#include "comm/rendezvous/door.h"
#include "comm/rendezvous/local_address.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/world/channel_group.h"
#include "comm/world/peer_record.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {

namespace {

Transport wanted_transport(const ProcessGroupOptions& options) {
  const char* variable = std::getenv("SHOAL_TRANSPORT");
  const std::string text = variable == nullptr ? "" : variable;
  if (text.empty()) return options.transport;
  for (size_t i = 0; i < kTransportNames.size(); ++i) {
    if (text == kTransportNames[i]) return static_cast<Transport>(i);
  }
  throw Error("comm SHOAL_TRANSPORT", fmt::format("{} is not a transport. Use one of {}.", text,
                                                  join({kTransportNames.begin(), kTransportNames.end()}, ", ")));
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.empty() ? "-" : id;
}

// The n-th world of this process; all ranks make them in the same order, so the number tells worlds apart in a store.
int next_world_index() {
  static std::atomic<int> made{0};
  return made++;
}

constexpr const char* kJoinFailureKey = "join/failure";
// The store may end with rank 0: the others, who look every few milliseconds, get this time to read why.
constexpr auto kHearingDelay = std::chrono::milliseconds(1000);
constexpr Timeout kLookLimit = std::chrono::milliseconds(1000);
// Of calls that tell how far ranks are.
constexpr Timeout kProgressLimit = std::chrono::milliseconds(3000);
// The most that rank 0 waits for the others to know what it knows.
constexpr auto kKnowingDelay = std::chrono::milliseconds(5000);

// What every rank concludes from the same records ends all of them alike. Each says that it has read them, and rank 0,
// with which the store may end, waits for the others before it throws.
void conclude(KeyStore& store, const Rendezvous& place, const std::string& about, const std::function<void()>& check) {
  const auto key_of = [&](int rank) { return fmt::format("knows/{}/{}", about, rank); };
  store.set(key_of(place.rank), "yes");
  try {
    check();
  } catch (const Error&) {
    const auto deadline = std::chrono::steady_clock::now() + kKnowingDelay;
    for (int peer = 1; place.rank == 0 && peer < place.world; ++peer) wait_for_key(store, key_of(peer), deadline);
    throw;
  }
}

// Long enough for rank 0, which has made the store, to say there of which run it is.
constexpr Timeout kRunDelay = std::chrono::milliseconds(2000);

std::string name_of_store(const Rendezvous& place) { return fmt::format("{}:{}", place.host, place.port); }

std::string host_name() {
  char name[256] = "";
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

const char* server_of_store(const Rendezvous& place) { return place.store_is_served ? "the launcher" : "rank 0"; }

// Runs `work`; when the store is gone meanwhile, says with whom.
template <class Work>
auto naming_the_server(const Rendezvous& place, const std::string& at, const Work& work) {
  try {
    return work();
  } catch (const StoreSilent& silent) {
    throw Error(fmt::format("comm rank {}", place.rank),
                fmt::format("{}: {}", at, cause_store_silent(server_of_store(place), silent.limit)));
  } catch (const Error& error) {
    if (error.place() != kStorePlace) throw;
    throw Error(fmt::format("comm rank {}", place.rank),
                fmt::format("{}: {} died or left, and with it the rendezvous store. Look at its output.", at,
                            server_of_store(place)));
  }
}

// Ranks that wait for each other before they can talk look here whether another gave up.
void look_for_failure(KeyStore& store, const Rendezvous& place, const std::string& at) {
  std::optional<std::string> failure;
  try {
    failure = store.get(kJoinFailureKey, kLookLimit);
  } catch (const StoreSilent&) {
    return;  // who waits for a key asks again, until its deadline
  }
  if (failure) throw error_of(failure_from_text(*failure), place.rank, at);
}

[[noreturn]] void give_up(KeyStore& store, const Rendezvous& place, const std::string& at, const std::string& cause) {
  const Failure own{place.rank, at, cause};
  const Failure first = failure_from_text(store.set_once(kJoinFailureKey, to_text(own)));
  if (place.rank == 0) std::this_thread::sleep_for(kHearingDelay);
  throw error_of(first, place.rank, at);
}

// A store at a port that two runs were given is rank 0's of one of them: the ranks of the other shall not join it.
// Where torchrun serves it, it is of one run. What is not said in time is found out by records.
void check_run(KeyStore& store, const Rendezvous& place, const std::string& own) {
  if (own.empty() || place.store_is_served) return;
  const std::string key = "run";
  const auto deadline = std::chrono::steady_clock::now() + kRunDelay;
  const std::optional<std::string> found =
      place.rank == 0 ? store.set_once(key, own) : wait_for_key(store, key, deadline);
  if (!found || *found == own) return;
  throw Error(fmt::format("comm rank {}", place.rank),
              fmt::format("the rendezvous store at {} is of another run, {}, and this rank of {}. Give each run a "
                          "MASTER_PORT of its own; ranks of one run may be given the same SHOAL_RUN_ID.",
                          name_of_store(place), *found, own));
}

struct Joined {
  std::vector<PeerRecord> records;
  std::shared_ptr<Slab> probe;  // peers look at it until all have said what they can reach
};

Joined join_world(KeyStore& store, const Rendezvous& place, const PeerRecord& about, Timeout timeout) {
  const std::string who = fmt::format("comm rank {}", place.rank);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Joined joined;
  PeerRecord own = about;
  std::random_device entropy;
  own.token = (static_cast<uint64_t>(entropy()) << 32) | entropy();
  joined.probe =
      Slab::create(sizeof(own.token), Slab::Backing::shareable, std::make_shared<Ledger>(), MemoryKind::staging);
  std::memcpy(joined.probe->data(), &own.token, sizeof(own.token));
  own.probe_fd = joined.probe->fd();

  const auto key_of = [](int rank) { return fmt::format("rank/{}", rank); };
  const std::string at = "joining the world";
  const auto told = [&] { return store.set_once(key_of(place.rank), to_text(own)); };
  const std::string first = naming_the_server(place, at, told);
  if (first != to_text(own)) {
    const PeerRecord other = peer_record_from_text(first);
    throw Error(who,
                fmt::format("another process has joined as rank {} already at {}: {} on {} ({}). Give each process "
                            "a rank of its own, and each run a MASTER_PORT of its own.",
                            place.rank, name_of_store(place), other.pid, other.host, other.address));
  }
  const auto look_around = [&] { look_for_failure(store, place, at); };
  for (int peer = 0; peer < place.world; ++peer) {
    try {
      if (const auto text = wait_for_key(store, key_of(peer), deadline, look_around)) {
        joined.records.push_back(peer_record_from_text(*text));
        // Who waits for ranks of a larger world shall not wait for those that will not come.
        const PeerRecord& record = joined.records.back();
        if (record.world != own.world) give_up(store, place, at, difference(record, peer, own, place.rank));
        continue;
      }
      std::vector<int> missing{peer};
      for (int late = peer + 1; late < place.world; ++late) {
        if (!store.get(key_of(late))) missing.push_back(late);
      }
      give_up(store, place, at, cause_not_joined(missing, timeout, name_of_store(place)));
    } catch (const StoreSilent& silent) {
      throw Error(who, fmt::format("{}: {}", at, cause_store_silent(server_of_store(place), silent.limit)));
    } catch (const Error& error) {
      if (error.place() != kStorePlace) throw;
      throw Error(who,
                  fmt::format("{}: rank {} had not arrived when {} died or left, and with it the rendezvous store. "
                              "Look at its output.",
                              at, peer, server_of_store(place)));
    }
  }
  naming_the_server(place, at,
                    [&] { conclude(store, place, "world", [&] { check_one_world(joined.records, place.rank); }); });
  return joined;
}

// Whether all ranks can use shared memory: all try, all say, all hear all.
bool agree_on_shared_memory(KeyStore& store, const Rendezvous& place, const Joined& joined, Timeout timeout) {
  const Transport wanted = joined.records.front().wanted;
  if (wanted == Transport::gloo) return false;
  const std::string who = fmt::format("comm rank {}", place.rank);
  const std::string at = "choosing the transport";
  const Timeout limit = std::min(timeout, kMeetingTimeout);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const auto look_around = [&] { look_for_failure(store, place, at); };
  const auto key_of = [](int rank) { return fmt::format("reach/{}", rank); };
  std::string obstacle;
  naming_the_server(place, at, [&] {
    if (!same_host(joined.records)) {
      obstacle = "the ranks are on several hosts";
    } else {
      const std::string own = unreachable_memory(joined.records);
      store.set(key_of(place.rank), own.empty() ? "all" : own);
      for (int peer = 0; peer < place.world; ++peer) {
        const auto reach = wait_for_key(store, key_of(peer), deadline, look_around);
        if (!reach) give_up(store, place, at, cause_silent({peer}, limit));
        if (*reach != "all" && obstacle.empty()) obstacle = fmt::format("rank {} {}", peer, *reach);
      }
    }
    conclude(store, place, "reach", [&] {
      if (obstacle.empty() || wanted != Transport::shared_memory) return;
      throw Error(who, fmt::format("shared memory was asked for, but {}. Use SHOAL_TRANSPORT=gloo.", obstacle));
    });
  });
  return obstacle.empty();
}

std::unique_ptr<Carrier> make_shm_carrier(const std::shared_ptr<C10dStore>& store, const Rendezvous& place,
                                          const Joined& joined, Timeout timeout) {
  ShmWorld::Options options;
  options.rank = place.rank;
  options.timeout = timeout;
  options.store = store;
  options.store_server = server_of_store(place);
  options.progress_store = store->within(std::min(timeout, kProgressLimit));
  for (const PeerRecord& record : joined.records) options.pids.push_back(record.pid);
  options.hosts = counted_hosts(joined.records);
  auto board = std::make_unique<ShmBoard>(std::make_shared<ShmWorld>(options));
  return std::make_unique<BoardCarrier>(std::move(board));
}

std::unique_ptr<Carrier> make_gloo_carrier(const std::shared_ptr<C10dStore>& store, const Rendezvous& place,
                                           const Joined& joined, Timeout timeout) {
  GlooWorld::Options options;
  options.rank = place.rank;
  options.size = place.world;
  options.timeout = timeout;
  options.store = store;
  options.store_host = place.store_is_served ? -1 : 0;
  options.address = joined.records[place.rank].address;
  options.hosts = counted_hosts(joined.records);
  const std::vector<int> host_of = hosts_of(joined.records);
  for (size_t rank = 0; rank < joined.records.size(); ++rank) {
    options.places.push_back({host_of[rank], joined.records[rank].host, joined.records[rank].door});
  }
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  options.interface = interface == nullptr ? "" : interface;
  naming_the_server(place, "connecting", [&] {
    conclude(*store, place, "addresses", [&] { check_addresses(joined.records, place.rank); });
  });
  return std::make_unique<GlooCarrier>(std::make_shared<GlooWorld>(options));
}

}  // namespace

std::unique_ptr<Group> make_process_group(const ProcessGroupOptions& options) {
  const Rendezvous place = read_rendezvous([](const char* name) { return std::getenv(name); });
  PeerRecord about;
  about.wanted = wanted_transport(options);
  if (place.world == 1) return make_single_group();
  about.world = place.world;
  about.boot_id = boot_id();
  about.said_host = host_said(std::getenv("SHOAL_HOSTS"), place.world, place.rank);
  about.pid = getpid();
  about.host = host_name();
  about.run = read_run([](const char* name) { return std::getenv(name); });
  const std::vector<Interface> found = interfaces();
  const char* wanted_interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (wanted_interface != nullptr && *wanted_interface != '\0') {
    about.address = address_of(wanted_interface, found);
    if (about.address.empty()) {
      throw Error("environment GLOO_SOCKET_IFNAME",
                  fmt::format("{} is no interface of {} that is up. It has {}. Correct it.", wanted_interface,
                              about.host, to_text(found)));
    }
  } else {
    about.address = local_address_towards(place.host);
  }
  const std::string who = fmt::format("comm rank {}", place.rank);
  if (about.address.empty()) {
    throw Error(who,
                fmt::format("MASTER_ADDR={} cannot be resolved, or no network leads there. Correct it.", place.host));
  }

  about.interface = interface_of(about.address, found);
  const Door door(about.address);  // until all are connected
  about.door = door.at();

  TcpStoreOptions tcp;
  tcp.host = place.host;
  tcp.port = place.port;
  tcp.serve = place.rank == 0 && !place.store_is_served;
  tcp.timeout = options.timeout;
  tcp.place = who;
  tcp.server = server_of_store(place);
  const auto store = connect_tcp_store(tcp)->under(fmt::format("shoal/{}/{}", place.attempt, next_world_index()));
  naming_the_server(place, "joining the world", [&] { check_run(*store, place, about.run); });
  const Joined joined = join_world(*store, place, about, options.timeout);
  auto carrier = agree_on_shared_memory(*store, place, joined, options.timeout)
                     ? make_shm_carrier(store, place, joined, options.timeout)
                     : make_gloo_carrier(store, place, joined, options.timeout);
  // No rank goes on, and maybe ends with the store, before all have come this far. Not counted: #1 is the user's first.
  carrier->barrier(ticket_of(Subject{"join", "world"}, 0));
  const std::vector<int> host_of = hosts_of(joined.records);
  if (place.rank == 0 && *std::max_element(host_of.begin(), host_of.end()) > 0) {
    fmt::print(stderr, "shoal: {}\n", say_hosts(joined.records, carrier->transport_name(), name_of_store(place)));
  }
  return std::make_unique<ChannelGroup>(std::move(carrier), std::make_shared<Worker>(), about.wanted);
}

}  // namespace shoal
