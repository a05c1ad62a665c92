// One cell of the exactness matrix, on any device: at one world size every stage, with overlap on or off and recompute
// on or off, gives the same bits of loss, norm and weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/config.h"
#include "training/matrix_run.h"

namespace shoal::testing {

struct Cell {
  int world;
  Precision precision;
  int64_t accumulation;
  bool clip;
};

std::vector<Cell> every_cell(const std::vector<int>& worlds);

std::string cell_name(const ::testing::TestParamInfo<Cell>& info);

void expect_same_bits_in(const Cell& cell, at::Device device);

}  // namespace shoal::testing
