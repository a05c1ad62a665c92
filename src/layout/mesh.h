// Where ranks stand: a grid with named axes. Pure. Nobody else turns a rank into coordinates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shoal {

// Ranks along `shard` hold parts of one copy of the model, ranks along `replica` copies of the same part. A copy may be
// cut over `span` too: over several hosts, where `shard` is the ranks of one. `world` is no axis: all ranks.
inline constexpr std::string_view kReplica = "replica";
inline constexpr std::string_view kSpan = "span";
inline constexpr std::string_view kShard = "shard";
inline constexpr std::string_view kWorld = "world";

struct Axis {
  std::string name;
  int size = 1;
  bool own_samples = true;  // its ranks take different samples
};

// A rank's coordinates, one an axis.
struct Place {
  std::vector<int> at;
  bool operator==(const Place&) const = default;
};

class Mesh {
 public:
  // So many ranks along `shard`: what ZeRO means without another word.
  Mesh(int world = 1);  // NOLINT(google-explicit-constructor): a number of ranks is a mesh
  // Row by row: ranks that follow each other differ in the last axis first.
  explicit Mesh(std::vector<Axis> axes);

  int world() const { return world_; }
  // Ranks that take different samples: what means, batches and the order of samples count.
  int data_ranks() const;
  // The rank's number among them: ranks that take the same samples have the same one.
  int data_rank(int rank) const;
  // Of each data rank the first rank, in their order: whose losses a mean counts.
  std::vector<int> first_of_data_ranks() const;
  // Of an axis that is not there: 1.
  int size_of(std::string_view axis) const;
  // Parts of one copy of the model.
  int shards() const { return size_of(kSpan) * size_of(kShard); }
  const std::vector<Axis>& axes() const { return axes_; }

  Place place_of(int rank) const;
  int rank_of(const Place& place) const;
  // The rank's coordinate along the axis; 0 along one that is not there.
  int at(int rank, std::string_view axis) const;
  // The ranks that differ from this one in that axis only, itself among them, in the axis' order.
  std::vector<int> along(std::string_view axis, int rank) const;

  // "4", or "replica 2 x shard 2".
  std::string to_text() const;

 private:
  std::vector<Axis> axes_;
  int world_ = 1;
};

}  // namespace shoal
