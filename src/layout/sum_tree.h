// The order in which squares are added up, such that no cut shows in the sum: which sums a rank makes of its part of a
// flat, and how they become one. Pure: integers, and additions of what others have summed. For the host and for a GPU.
//
// [Note: the tree of sums]
// A run is kRunNumel elements, counted from the beginning (of a flat, or of whatever is summed); every cut and every
// parameter begins at a multiple of it. Its squares are summed by the contract of kernels/reduce.h. Above the runs
// stands a binary tree: the node (level l, index k) covers the runs [k * 2^l, (k + 1) * 2^l) and is the sum of its left
// and its right child. A child past the end is absent and its sibling takes the place of both; a run of zeros gives the
// same, since a sum of squares is never -0. So the root depends on the elements alone, not on padding, not on how many
// ranks there are, and not on where they cut.
// A range of runs is the canonical list of nodes: from its first run on always the largest node that begins there and
// ends within it. A kernel writes its *pieces*, nodes of at most a block (kBlockRuns runs). They are added up to its
// *tops*, nodes of any size, about two a level, and only these travel. Whoever has the tops of all ranks in order adds
// siblings, and what is left in the end from the right.
//
// Instruction sets' files include this: see [Note: nothing of an instruction set's file leaks] in kernels/element.h.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SHOAL_ON_BOTH __host__ __device__
#else
#define SHOAL_ON_BOTH
#endif

namespace shoal {

// Where the tops of one flat stand among those that a rank gives. Every rank has the same places.
struct FlatTops {
  int64_t part_runs = 0;  // runs of one rank's part
  int64_t offset = 0;     // first place
  int64_t places = 0;     // as many as the part with the most tops needs
};

namespace {

inline constexpr int64_t kRunNumel = 128;
inline constexpr int kBlockLevel = 5;
inline constexpr int64_t kBlockRuns = int64_t{1} << kBlockLevel;
inline constexpr int kMostLevel = 48;
inline constexpr int kMostTops = 2 * kMostLevel;

SHOAL_ON_BOTH inline int64_t runs_of(int64_t numel) { return (numel + kRunNumel - 1) / kRunNumel; }

// The level of the largest node, of at most `most`, that begins at this run and ends by `end`. There is one run at
// least.
SHOAL_ON_BOTH inline int node_level(int64_t begin, int64_t end, int most) {
  int level = 0;
  for (int64_t runs = 2; level < most && begin % runs == 0 && runs <= end - begin; runs *= 2) ++level;
  return level;
}

SHOAL_ON_BOTH inline int64_t node_count(int64_t begin, int64_t end, int most) {
  int64_t count = 0;
  for (; begin < end; ++count) begin += int64_t{1} << node_level(begin, end, most);
  return count;
}
SHOAL_ON_BOTH inline int64_t piece_count(int64_t begin, int64_t end) {
  const int64_t whole = (end / kBlockRuns) - (begin + kBlockRuns - 1) / kBlockRuns;  // blocks
  if (whole <= 0) return node_count(begin, end, kBlockLevel);
  const int64_t first = (begin + kBlockRuns - 1) / kBlockRuns * kBlockRuns;
  return node_count(begin, first, kBlockLevel) + whole + node_count(end / kBlockRuns * kBlockRuns, end, kBlockLevel);
}
SHOAL_ON_BOTH inline int64_t top_count(int64_t begin, int64_t end) { return node_count(begin, end, kMostLevel); }

// The node above these, a power of two of at most kBlockRuns.
SHOAL_ON_BOTH inline double node_sum(const double* nodes, int64_t count) {
  if (count == 1) return nodes[0];
  double sums[kBlockRuns / 2];
  for (int64_t i = 0; i < count / 2; ++i) sums[i] = nodes[2 * i] + nodes[2 * i + 1];
  for (int64_t left = count / 2; left > 1; left /= 2) {
    for (int64_t i = 0; i < left / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  return sums[0];
}

// The pieces of the runs [begin, end) of one block; runs[0] is the sum of run `begin`. Returns how many there are.
SHOAL_ON_BOTH inline int64_t write_pieces(const double* runs, int64_t begin, int64_t end, double* pieces) {
  int64_t count = 0;
  while (begin < end) {
    const int64_t covered = int64_t{1} << node_level(begin, end, kBlockLevel);
    pieces[count++] = node_sum(runs, covered);
    runs += covered;
    begin += covered;
  }
  return count;
}

// Takes nodes in order, without a gap, and adds siblings as they meet.
class SumStack {
 public:
  // The first node begins at this run.
  SHOAL_ON_BOTH explicit SumStack(int64_t begin) : run_(begin) {}

  SHOAL_ON_BOTH void push(int level, double sum) {
    int64_t index = run_ >> level;
    run_ += int64_t{1} << level;
    for (; index % 2 == 1 && count_ > 0 && levels_[count_ - 1] == level; index /= 2, ++level) {
      sum = sums_[--count_] + sum;
    }
    sums_[count_] = sum;
    levels_[count_++] = level;
  }

  // The run after the last node.
  SHOAL_ON_BOTH int64_t run() const { return run_; }
  // What could not be added yet: the canonical nodes of what was pushed.
  SHOAL_ON_BOTH int count() const { return count_; }
  SHOAL_ON_BOTH double sum(int index) const { return sums_[index]; }
  // Of nodes from run 0 to the end of all.
  SHOAL_ON_BOTH double root() const {
    if (count_ == 0) return 0;
    double sum = sums_[count_ - 1];
    for (int i = count_ - 2; i >= 0; --i) sum = sums_[i] + sum;
    return sum;
  }

 private:
  int64_t run_;
  int count_ = 0;
  int levels_[kMostTops];
  double sums_[kMostTops];
};

// From the pieces of the runs [begin, end) to their tops.
inline void sum_pieces(const double* pieces, int64_t begin, int64_t end, double* tops) {
  SumStack stack(begin);
  while (stack.run() < end) stack.push(node_level(stack.run(), end, kBlockLevel), *pieces++);
  for (int i = 0; i < stack.count(); ++i) tops[i] = stack.sum(i);
}

// The sum of squares of a whole flat from the tops of its parts. `sums`: those of all ranks, `rank_places` a rank;
// rank_of_part[p] is whose part number p is.
SHOAL_ON_BOTH inline double flat_root(const double* sums, int64_t rank_places, const int* rank_of_part, int64_t parts,
                                      const FlatTops& flat) {
  SumStack stack(0);
  for (int64_t part = 0; part < parts; ++part) {
    const double* tops = sums + rank_of_part[part] * rank_places + flat.offset;
    const int64_t end = (part + 1) * flat.part_runs;
    for (int64_t at = 0; stack.run() < end; at += 8) {
      double next[8];  // a GPU reads these at once
      for (int k = 0; k < 8; ++k) next[k] = at + k < flat.places ? tops[at + k] : 0;
      for (int k = 0; k < 8; ++k) {
        if (stack.run() < end) stack.push(node_level(stack.run(), end, kMostLevel), next[k]);
      }
    }
  }
  return stack.root();
}

}  // namespace
}  // namespace shoal
