#include "comm/group/collective_log.h"

#include <gtest/gtest.h>

#include "shoal/collectives.h"

namespace shoal {
namespace {

TEST(CollectiveLog, IsOffUntilAsked) {
  CollectiveLog log;
  EXPECT_FALSE(log.is_on());
  log.switch_to(true);
  EXPECT_TRUE(log.is_on());
}

TEST(CollectiveLog, GivesEachRecordOnceInOrder) {
  CollectiveLog log;
  AllGather gather;
  gather.subject = {"gather", "block.3"};
  gather.shard_nbytes = 24;
  log.add(ticket_of(gather, 1), 0.5);
  log.add(ticket_of(Subject{"end", "step"}, 2), -1);
  const std::vector<CollectiveRecord> records = log.take();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].kind, "all_gather");
  EXPECT_EQ(records[0].subject, "gather of block.3");
  EXPECT_EQ(records[0].nbytes, 24u);
  EXPECT_EQ(records[0].seconds, 0.5);
  EXPECT_EQ(records[1].kind, "barrier");
  EXPECT_EQ(records[1].nbytes, 0u);
  EXPECT_EQ(records[1].seconds, -1);
  EXPECT_TRUE(log.take().empty());
}

}  // namespace
}  // namespace shoal
