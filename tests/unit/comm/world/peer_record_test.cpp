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

PeerRecord record() {
  return {2,   Transport::automatic, "boot-1", getpid(), 5, 0xfeedfacecafebeefull, "10.0.0.1", "eth0",
          "a", "10.0.0.1:7",         ""};
}

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
  EXPECT_EQ(back.door, "10.0.0.1:7");
  EXPECT_EQ(back.run, "");
  PeerRecord odd = record();
  odd.host = "my host";
  odd.run = "SLURM_JOB_ID=4 2";
  odd.door = odd.interface = "";
  const PeerRecord again = peer_record_from_text(to_text(odd));
  EXPECT_EQ(again.host + "|" + again.run + "|" + again.door + again.interface, "my_host|SLURM_JOB_ID=4_2|");
}

TEST(PeerRecord, DifferentWorldsOrTransportsAreNamed) {
  std::vector<PeerRecord> records{record(), record()};
  EXPECT_EQ(complaint(records, 0), "no complaint");
  records[1].world = 3;
  EXPECT_THAT(
      complaint(records, 0),
      HasSubstr(
          "[comm rank 0] rank 1 (a, 10.0.0.1) was started for a world of 3 and rank 0 (a, 10.0.0.1) for one of 2"));
  records[1] = record();
  records[1].run = "SLURM_JOB_ID=5";
  EXPECT_EQ(complaint(records, 0), "no complaint") << "a rank that knows of no run may be of any";
  records[0].run = "SLURM_JOB_ID=6";
  EXPECT_THAT(complaint(records, 0),
              HasSubstr("rank 1 (a, 10.0.0.1) is of another run, SLURM_JOB_ID=5, and this rank of SLURM_JOB_ID=6"));
  records[0] = records[1] = record();
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
  records[0].interface = "";
  const auto said = [&] {
    try {
      check_addresses(records, 1);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(said(), HasSubstr("rank 0 is to be reached at 127.0.1.1 (as its host takes MASTER_ADDR), which is no "
                                "address for rank 1 (a, 10.0.0.1)"));
  records[1].address = "127.0.0.1";
  EXPECT_EQ(said(), "");
  records[1].boot_id = "boot-2";
  EXPECT_THAT(said(), HasSubstr("rank 0 is to be reached at 127.0.1.1")) << "each host has a loopback of its own";
}

TEST(PeerRecord, HostsAreSaidWithTheirRanksAddressesAndInterfaces) {
  std::vector<PeerRecord> records{record(), record(), record()};
  records[1].boot_id = "boot-2";
  records[1].host = "b";
  records[1].address = "10.0.0.2";
  records[1].interface = "";
  EXPECT_EQ(hosts_of(records), (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(say_hosts(records, "gloo", "a:29500"),
            "3 ranks on 2 hosts, over gloo, meeting at a:29500: ranks 0, 2 on a at 10.0.0.1 (eth0); rank 1 on b at "
            "10.0.0.2 (no interface has it)");
  for (int host = 3; host < 12; ++host) {
    records.push_back(record());
    records.back().boot_id = std::to_string(host);
  }
  EXPECT_THAT(say_hosts(records, "gloo", "a:1"), HasSubstr("; and 3 hosts more"));
  for (PeerRecord& each : records) each.boot_id = "-";
  EXPECT_EQ(hosts_of({records[0], records[1], records[2]}), (std::vector<int>{0, 1, 0})) << "told apart by addresses";
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

TEST(PeerRecord, HostsAreNumberedAsTheyAppear) {
  std::vector<PeerRecord> records{record(), record(), record()};
  EXPECT_TRUE(counted_hosts(records).empty()) << "all on one";
  records[1].boot_id = "boot-2";
  EXPECT_EQ(counted_hosts(records), (std::vector<int>{0, 1, 0}));
  records[0].said_host = records[1].said_host = "a";  // SHOAL_HOSTS comes first
  records[2].said_host = "b";
  EXPECT_EQ(counted_hosts(records), (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(peer_record_from_text(to_text(records[2])).said_host, "b");
  EXPECT_EQ(peer_record_from_text(to_text(record())).said_host, "");
}

TEST(PeerRecord, HostsThatAreSaidAreOneForEachRank) {
  EXPECT_EQ(host_said("a,a,b", 3, 1), "a");
  EXPECT_EQ(host_said("a,a,b", 3, 2), "b");
  EXPECT_EQ(host_said(nullptr, 3, 2), "");
  EXPECT_EQ(host_said("", 3, 2), "");
  EXPECT_THROW(host_said("a,b", 3, 0), Error);
  EXPECT_THROW(host_said("a,,b", 3, 0), Error);
  EXPECT_THROW(host_said("a,a b,b", 3, 0), Error);
}

}  // namespace
}  // namespace shoal
