// make_process_group: reads the environment, meets the other ranks at the store, and chooses the transport: shared
// memory when every rank can open every other's memory, Gloo otherwise.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "comm/board_carrier.h"
#include "comm/channel_group.h"
#include "comm/gloo_carrier.h"
#include "comm/local_address.h"
#include "comm/peer_record.h"
#include "comm/rendezvous.h"
#include "comm/shm_board.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {

namespace {

Transport wanted_transport(const ProcessGroupOptions& options) {
  const char* variable = std::getenv("SHOAL_TRANSPORT");
  const std::string text = variable == nullptr ? "" : variable;
  if (text.empty()) return options.transport;
  if (text == "auto") return Transport::automatic;
  if (text == "shm") return Transport::shared_memory;
  if (text == "gloo") return Transport::gloo;
  throw Error("comm SHOAL_TRANSPORT", fmt::format("{} is not a transport. Use auto, shm or gloo.", text));
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
constexpr auto kHearingDelay = std::chrono::milliseconds(300);

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
  if (store.set_once(key_of(place.rank), to_text(own)) != to_text(own)) {
    throw Error(who, fmt::format("another process has joined as rank {} already. Give each process a rank of its own, "
                                 "and each run a MASTER_PORT of its own.",
                                 place.rank));
  }
  const std::string at = "joining the world";
  for (int peer = 0; peer < place.world; ++peer) {
    const auto look_around = [&] {
      if (const auto failure = store.get(kJoinFailureKey)) {
        throw error_of(failure_from_text(*failure), place.rank, at);
      }
    };
    std::optional<std::string> text;
    try {
      text = wait_for_key(store, key_of(peer), deadline, look_around);
    } catch (const Error& error) {
      if (error.place() != kStorePlace) throw;
      throw Error(who, fmt::format("{}: rank {} had not arrived when the store was gone; its server gave up or died. "
                                   "Look at the output of rank 0.",
                                   at, peer));
    }
    if (text) {
      joined.records.push_back(peer_record_from_text(*text));
      continue;
    }
    std::vector<int> missing;
    for (int late = peer; late < place.world; ++late) {
      if (late == peer || !store.get(key_of(late))) missing.push_back(late);
    }
    const Failure failure{place.rank, at, cause_late(missing, timeout)};
    store.set_once(kJoinFailureKey, to_text(failure));
    if (place.rank == 0) std::this_thread::sleep_for(kHearingDelay);
    throw error_of(failure, place.rank, at);
  }
  check_one_world(joined.records, place.rank);
  return joined;
}

// Whether all ranks can use shared memory: all try, all say, all hear all.
bool agree_on_shared_memory(KeyStore& store, const Rendezvous& place, const Joined& joined, Timeout timeout) {
  const Transport wanted = joined.records.front().wanted;
  if (wanted == Transport::gloo) return false;
  const std::string who = fmt::format("comm rank {}", place.rank);
  if (!same_host(joined.records)) {
    if (wanted == Transport::automatic) return false;
    throw Error(who, "shared memory was asked for, but the ranks are on several hosts. Use SHOAL_TRANSPORT=gloo.");
  }
  const auto key_of = [](int rank) { return fmt::format("reach/{}", rank); };
  const std::string own = unreachable_memory(joined.records);
  store.set(key_of(place.rank), own.empty() ? "all" : own);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int peer = 0; peer < place.world; ++peer) {
    const auto reach = wait_for_key(store, key_of(peer), deadline);
    if (!reach) throw Error(who, "choosing the transport: " + cause_late({peer}, timeout));
    if (*reach == "all") continue;
    if (wanted == Transport::automatic) return false;
    throw Error(who,
                fmt::format("shared memory was asked for, but rank {} {}. Use SHOAL_TRANSPORT=gloo.", peer, *reach));
  }
  return true;
}

std::unique_ptr<Carrier> make_shm_carrier(const std::shared_ptr<C10dStore>& store, const Rendezvous& place,
                                          const Joined& joined, Timeout timeout) {
  ShmWorld::Options options;
  options.rank = place.rank;
  options.timeout = timeout;
  options.store = store;
  for (const PeerRecord& record : joined.records) options.pids.push_back(record.pid);
  auto board = std::make_unique<ShmBoard>(std::make_shared<ShmWorld>(options), "");
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
  options.address = joined.records[static_cast<size_t>(place.rank)].address;
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  options.interface = interface == nullptr ? "" : interface;
  if (options.interface.empty()) check_addresses(joined.records, place.rank);
  return std::make_unique<GlooCarrier>(std::make_shared<GlooWorld>(options), "");
}

}  // namespace

std::unique_ptr<Group> make_process_group(const ProcessGroupOptions& options) {
  const Rendezvous place = read_rendezvous([](const char* name) { return std::getenv(name); });
  PeerRecord about;
  about.wanted = wanted_transport(options);
  if (place.world == 1) return make_single_group();
  about.world = place.world;
  about.boot_id = boot_id();
  about.pid = getpid();
  about.address = local_address_towards(place.host);
  const std::string who = fmt::format("comm rank {}", place.rank);
  if (about.address.empty()) {
    throw Error(who,
                fmt::format("MASTER_ADDR={} cannot be resolved, or no network leads there. Correct it.", place.host));
  }

  TcpStoreOptions tcp;
  tcp.host = place.host;
  tcp.port = place.port;
  tcp.serve = place.rank == 0 && !place.store_is_served;
  tcp.timeout = options.timeout;
  tcp.place = who;
  const auto store = connect_tcp_store(tcp)->under(fmt::format("shoal/{}/{}", place.attempt, next_world_index()));
  const Joined joined = join_world(*store, place, about, options.timeout);
  auto carrier = agree_on_shared_memory(*store, place, joined, options.timeout)
                     ? make_shm_carrier(store, place, joined, options.timeout)
                     : make_gloo_carrier(store, place, joined, options.timeout);
  return std::make_unique<ChannelGroup>(std::move(carrier));
}

}  // namespace shoal
