// What is gathered and released next, at stage 3. Pure: it is told what the model does and answers with actions;
// the engine carries them out. The ranks issue gathers in one agreed order, whether or not they use every unit.
//
// [Note: one order for all ranks]
// A phase of a pass (forward, backward, evaluate) has an order of units, recorded the first time. Later passes issue
// gathers as a prefix of it: a unit that this rank skips is gathered and released all the same, so a rank that takes
// another branch does not leave its peers waiting. A unit that is entered though the rest of the order does not hold
// it is gathered on demand, which works only where all ranks do so at the same place; otherwise the group finds that
// they disagree. In the first pass there is no order yet, so the ranks agree gather by gather: each says which unit it
// wants next (kNoUnit at the end of the phase), choose() picks one of the wishes, the same on every rank, and all take
// part in its gather. A rank may leave units out, not swap them: ranks that do are found at the end of the first
// forward, since in backward they could wait for each other in a gather and a reduction at once.
//
// [Note: units that no rank used]
// An expert without tokens, or a layer that was dropped, may be used in a later pass, by some ranks. So the order holds
// every unit; where one would have been used is guessed by its family, the members of one list, which are used side by
// side and in their declared order if at all. Without such a hint it follows the unit that is declared before it.
//
// [Note: what may run ahead]
// How far a rank runs ahead is its own affair, since the order stays the same. But what it issues ahead of use must not
// hold it up: it would wait for peers that may wait for it, in a reduction that it has not come to. Shards that pass
// through buffers do hold up: one that finds its buffer lent waits until the gather that reads there is over. So of the
// units of one buffer only one runs ahead. The unit in use may have the same buffer, as its own gather is waited for
// anyway.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

enum class Phase : uint8_t { forward, backward, evaluate };

inline constexpr int kNoUnit = -1;

struct Action {
  enum class Verb : uint8_t { gather, release };
  Verb verb = Verb::gather;
  int unit = 0;
  bool operator==(const Action&) const = default;
};

struct GatherLimits {
  int64_t prefetch_numel = 0;          // elements gathered ahead of use, at most; 0: none
  bool one_ahead = false;              // the next unit is gathered ahead of use, however large it is
  int64_t max_live_numel = INT64_MAX;  // elements gathered in all; only ahead-of-use gathers wait for it
  // Per unit: the buffer that its shards pass through before a gather reads them; -1: none. Empty: none of any.
  std::vector<int> buffer_of = {};
  std::vector<int> family_of = {};  // per unit: see [Note: units that no rank used]. Empty: each is its own
};

class GatherSchedule {
 public:
  // numel[u]: elements that unit u gathers; 0 for units that gather nothing and never appear in an action.
  GatherSchedule(std::vector<int64_t> numel, GatherLimits limits);

  // Opens a phase. The open one is finished first.
  std::vector<Action> begin(Phase phase);
  // The first pass of a phase: whether the ranks must agree before this unit is entered, and at the end of the phase.
  bool must_agree_on(int unit) const;
  bool must_agree_on_end() const { return open_ && !has_order_ && !expected_.empty(); }
  // The unit that all ranks gather next, of those they wish for; kNoUnit when all are at the end of the phase.
  int choose(const std::vector<int>& wishes) const;
  // Gathers a unit that other ranks wished for, and releases it.
  std::vector<Action> take_part(int unit);

  // This rank will not use the unit in this phase: takes part in its gather now, before it does something that the
  // other ranks reach only after theirs. Nothing if the unit had its turn already.
  std::vector<Action> pass_by(int unit);
  bool has_passed(int unit) const;

  // The unit is about to be used; after these actions it is live.
  std::vector<Action> enter(int unit);
  // One use of the unit is over.
  std::vector<Action> exit(int unit);
  // The phase is over: the rest of the order is taken part in, and nothing stays live.
  std::vector<Action> finish();

  // So many units that will likely be gathered next, each once, in this phase and in the one that follows it.
  std::vector<int> upcoming(int count) const;

  bool is_open() const { return open_; }
  Phase phase() const { return phase_; }
  bool is_live(int unit) const { return live_[unit]; }
  int64_t live_numel() const { return live_numel_; }

  // The order of a phase, empty until its first pass is over, and for each entry whether this rank used it.
  const std::vector<int>& order(Phase phase) const { return recorded_[static_cast<size_t>(phase)].units; }
  const std::vector<uint8_t>& used(Phase phase) const { return recorded_[static_cast<size_t>(phase)].used; }
  // Drops the entries that no rank used, and puts units that have no other where they might be used; `used_by_any` has
  // one flag per entry, merged over all ranks.
  void prune(Phase phase, const std::vector<uint8_t>& used_by_any);

 private:
  struct Order {
    std::vector<int> units;
    std::vector<uint8_t> used;
  };

  void gather(int unit, std::vector<Action>& actions);
  void release(int unit, std::vector<Action>& actions);
  void skip_to(size_t entry, std::vector<Action>& actions);
  void prefetch(std::vector<Action>& actions);
  bool buffer_is_taken(int unit) const;
  std::vector<int>::const_iterator find_ahead(int unit) const;
  void record(int unit, bool used);
  Order with_unused(const Order& kept, std::vector<int> unused, bool backward) const;

  std::vector<int64_t> numel_;
  GatherLimits limits_;
  Order recorded_[3];
  bool open_ = false;
  Phase phase_ = Phase::forward;
  Order executed_;             // of the open phase, in order of use
  bool has_order_ = false;     // the open phase has a recorded order
  std::vector<int> expected_;  // the recorded order; in a first pass, the order that is likely
  size_t used_up_to_ = 0;      // entries of expected_ before this are used or skipped
  size_t gathered_up_to_ = 0;  // entries before this are gathered
  std::vector<int> uses_;      // per unit: enters without exit
  std::vector<bool> live_;
  int64_t live_numel_ = 0;
  int64_t ahead_numel_ = 0;  // live and not yet used
  std::vector<bool> ahead_;
};

// Two ranks that use the same two units once each, in different orders.
struct Inversion {
  int unit = 0;
  int other_unit = 0;
  int rank_before = 0;  // uses `unit` before `other_unit`
  int rank_after = 0;   // uses it after
};
// `used` holds the flags of all ranks one after the other, each as long as the order. Units that a rank uses more than
// once say nothing: a rank may leave any of the uses out.
std::optional<Inversion> find_inversion(const std::vector<int>& order, const std::vector<uint8_t>& used);

// "gather 3\nrelease 2\n": for golden tests and traces.
std::string to_text(const std::vector<Action>& actions);

}  // namespace shoal
