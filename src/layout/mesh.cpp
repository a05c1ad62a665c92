// See mesh.h.
#include "layout/mesh.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace shoal {

Mesh::Mesh(int world) : Mesh(std::vector<Axis>{{.name = std::string(kShard), .size = world}}) {}

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
  for (const Axis& axis : axes_) {
    SHOAL_CHECK(axis.size >= 1, "axis {} has {} ranks", axis.name, axis.size);
    world_ *= axis.size;
  }
}

int Mesh::data_ranks() const {
  int ranks = 1;
  for (const Axis& axis : axes_) ranks *= axis.own_samples ? axis.size : 1;
  return ranks;
}

int Mesh::data_rank(int rank) const {
  const Place place = place_of(rank);
  int among = 0;
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    if (axes_[axis].own_samples) among = among * axes_[axis].size + place.at[axis];
  }
  return among;
}

std::vector<int> Mesh::first_of_data_ranks() const {
  std::vector<int> first(static_cast<size_t>(data_ranks()), -1);
  for (int rank = world_ - 1; rank >= 0; --rank) first[static_cast<size_t>(data_rank(rank))] = rank;
  return first;
}

int Mesh::size_of(std::string_view name) const {
  for (const Axis& axis : axes_) {
    if (axis.name == name) return axis.size;
  }
  return 1;
}

Place Mesh::place_of(int rank) const {
  SHOAL_CHECK(rank >= 0 && rank < world_, "rank {} of {}", rank, world_);
  Place place;
  place.at.resize(axes_.size());
  for (size_t axis = axes_.size(); axis-- > 0;) {
    place.at[axis] = rank % axes_[axis].size;
    rank /= axes_[axis].size;
  }
  return place;
}

int Mesh::rank_of(const Place& place) const {
  SHOAL_CHECK_EQ(place.at.size(), axes_.size());
  int rank = 0;
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    const int at = place.at[axis];
    SHOAL_CHECK(at >= 0 && at < axes_[axis].size, "place {} of axis {}", at, axes_[axis].name);
    rank = rank * axes_[axis].size + at;
  }
  return rank;
}

int Mesh::at(int rank, std::string_view name) const {
  const Place place = place_of(rank);
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    if (axes_[axis].name == name) return place.at[axis];
  }
  return 0;
}

std::vector<int> Mesh::along(std::string_view name, int rank) const {
  Place place = place_of(rank);
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    if (axes_[axis].name != name) continue;
    std::vector<int> ranks;
    for (place.at[axis] = 0; place.at[axis] < axes_[axis].size; ++place.at[axis]) ranks.push_back(rank_of(place));
    return ranks;
  }
  return {rank};
}

std::string Mesh::to_text() const {
  if (axes_.size() == 1 && axes_[0].name == kShard) return fmt::format("{}", world_);
  std::string text;
  for (const Axis& axis : axes_) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.name, axis.size);
  return text;
}

}  // namespace shoal
