// What ranks conclude from each other's records.
#include "comm/world/peer_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "device/slab.h"
#include "shoal/error.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

PeerRecord record() { return {2, Transport::automatic, "boot-1", getpid(), 5, 0xfeedfacecafebeefull, "10.0.0.1"}; }

std::string complaint(const std::vector<PeerRecord>& records, int rank) {
  try {
    check_one_world(records, rank);
  } catch (const Error& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(PeerRecord, SurvivesTheWayThroughText) {
  const PeerRecord back = peer_record_from_text(to_text(record()));
  EXPECT_EQ(to_text(back), to_text(record()));
  EXPECT_EQ(back.token, record().token);
  EXPECT_EQ(back.address, "10.0.0.1");
}

TEST(PeerRecord, DifferentWorldsOrTransportsAreNamed) {
  std::vector<PeerRecord> records{record(), record()};
  EXPECT_EQ(complaint(records, 0), "no complaint");
  records[1].world = 3;
  EXPECT_THAT(complaint(records, 0),
              HasSubstr("[comm rank 0] rank 1 was started for a world of 3 and this rank for one of 2"));
  records[1] = record();
  records[1].wanted = Transport::gloo;
  EXPECT_THAT(complaint(records, 0), HasSubstr("rank 1 wants transport gloo and this rank auto"));
  EXPECT_THAT(complaint(records, 1), HasSubstr("rank 0 wants transport auto and this rank gloo"));
}

TEST(PeerRecord, HostsAreToldApartByTheirBoot) {
  std::vector<PeerRecord> records{record(), record()};
  EXPECT_TRUE(same_host(records));
  records[1].boot_id = "boot-2";
  EXPECT_FALSE(same_host(records));
  for (PeerRecord& each : records) each.boot_id.assign(1, '-');
  EXPECT_FALSE(same_host(records)) << "unknown is not the same";
}

TEST(PeerRecord, ALoopbackAddressAmongOthersIsNamed) {
  std::vector<PeerRecord> records{record(), record()};
  EXPECT_NO_THROW(check_addresses(records, 0));
  records[0].address = "127.0.1.1";
  try {
    check_addresses(records, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the host of rank 0 takes MASTER_ADDR for 127.0.1.1, where rank 1 (10.0.0.1)"));
  }
  records[1].address = "127.0.0.1";
  EXPECT_NO_THROW(check_addresses(records, 0));
}

TEST(PeerRecord, MemoryIsReachableOnlyWhereTheTokenIs) {
  auto slab = Slab::create(8, Slab::Backing::shareable, std::make_shared<Ledger>(), MemoryKind::staging);
  PeerRecord own = record();
  own.probe_fd = slab->fd();
  std::memcpy(slab->data(), &own.token, sizeof(own.token));
  EXPECT_EQ(unreachable_memory({own}), "");
  PeerRecord other = own;
  other.token += 1;
  EXPECT_THAT(unreachable_memory({own, other}), HasSubstr("is not rank 1 here"));
  other.probe_fd = 9999;
  EXPECT_THAT(unreachable_memory({own, other}), HasSubstr("cannot open memory of rank 1"));
}

}  // namespace
}  // namespace shoal
