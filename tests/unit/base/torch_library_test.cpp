#include "base/torch_library.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(TorchLibrary, AProgramWithoutTorchHasNoFolderOfIt) { EXPECT_EQ(torch_library_folder(), ""); }

}  // namespace
}  // namespace shoal
