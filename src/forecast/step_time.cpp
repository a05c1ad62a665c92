// See step_time.h.
#include "forecast/step_time.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "base/check.h"
#include "forecast/timeline.h"
#include "plan/memory.h"
#include "schedule/reduce_order.h"
#include "schedule/route.h"

namespace shoal::forecast {

namespace {

using Id = Timeline::Id;
constexpr Id kNothing = -1;

// One hop of all flats of a unit together.
struct UnitHop {
  double seconds = 0;
  double host_nbytes = 0;  // that leave a host
  Path path = Path::none;
};
using UnitRoute = std::vector<UnitHop>;

struct UnitPlan {
  UnitRoute forward_gather, backward_gather, reduce, late_reduce, share, publish;
  int64_t gathered_numel = 0;
  int64_t updated_numel = 0;  // by this rank
  bool has_gradients = false;
};

class StepSimulation {
 public:
  StepSimulation(const StepQuestion& question, int64_t micro_steps)
      : of_(question), micro_steps_(micro_steps), timeline_(question.calibration.shared) {
    plan_units();
    std::vector<bool> has_gradients;
    for (const UnitPlan& plan : plans_) has_gradients.push_back(plan.has_gradients);
    order_ = ReduceOrder(has_gradients);
    simulate();
  }

  StepTime measured() const {
    StepTime time;
    const double begin = timeline_.begin_of(marks_[0]), end = timeline_.begin_of(marks_[1]);
    const Timeline::Split split = timeline_.split(begin, end);
    time.seconds = end - begin;
    const auto of = [&](Purpose purpose) { return split.of[static_cast<size_t>(purpose)]; };
    time.compute = of(Purpose::compute);
    time.gathers = of(Purpose::gather);
    time.reductions = of(Purpose::reduction);
    time.update = of(Purpose::update);
    time.offload = of(Purpose::offload);
    time.gather_busy = gather_busy_;
    time.reduction_busy = reduction_busy_;
    time.host_nbytes = host_nbytes_;
    return time;
  }

 private:
  void plan_units() {
    const ModelLayout& layout = of_.layout;
    SHOAL_CHECK_EQ(of_.units.size(), layout.units.size());
    for (const UnitLayout& unit : layout.units) {
      UnitPlan plan;
      for (const FlatLayout& flat : unit.flats) {
        const FlatRoutes routes = routes_of(flat, of_.gradients, layout.mesh);
        add_route(plan.forward_gather, routes.gather, of_.manner.gather_wire);
        if (of_.manner.backward_from && !routes.gather.empty()) {
          add_route(plan.backward_gather,
                    gather_route(flat, *of_.manner.backward_from, Over::nobody, layout.mesh, {flat.dtype}),
                    of_.manner.gather_wire);
        } else {
          add_route(plan.backward_gather, routes.gather, of_.manner.gather_wire);
        }
        if (!flat.trainable) continue;
        plan.has_gradients = true;
        plan.updated_numel += state_numel(flat, of_.gradients.stage);
        const bool every = gradient_rule(flat, of_.gradients).every_micro_step;
        const Route reduce = of_.manner.exchanges ? routes.reduce : ring_route(flat);
        add_route(every ? plan.reduce : plan.late_reduce, reduce, of_.manner.reduce_wire);
        add_route(plan.share, routes.share, 1);
        add_route(plan.publish, routes.publish, 1);
      }
      plan.gathered_numel = gathered_numel(unit, of_.gradients.stage);
      plans_.push_back(std::move(plan));
    }
  }

  // Rings sum within a copy of the model first, then over the copies, all in the dtype of gradients.
  Route ring_route(const FlatLayout& flat) const {
    const Mesh& mesh = of_.layout.mesh;
    const Wire wire = {gradient_rule(flat, of_.gradients).wire};
    const bool two_hops = mesh.size_of(kReplica) > 1 && mesh.size_of(kSpan) == 1;
    Route route = reduce_route(flat, mesh, wire, two_hops ? Travel::sums : Travel::leaves);
    for (Hop& hop : route) hop.wire = wire;
    return route;
  }

  void add_route(UnitRoute& route, const Route& hops, double wire) {
    for (size_t hop = 0; hop < hops.size(); ++hop) {
      const LinkUse use =
          link_use(hops[hop], of_.layout.mesh, of_.cluster, of_.calibration, of_.manner.exchanges, wire);
      if (use.path == Path::none) continue;
      if (route.size() <= hop) route.resize(hop + 1);
      UnitHop& unit = route[hop];
      // Flats of a unit travel one after the other, without a wait between them.
      unit.seconds += use.seconds;
      unit.path = std::max(unit.path, use.path);
      unit.host_nbytes += use.host_nbytes;
    }
  }

  // Adds the hops to a lane; the last one, or `after` where there is none.
  Id travel(Lane lane, Purpose purpose, const UnitRoute& route, const std::vector<Id>& after) {
    Id last = kNothing;
    for (const UnitHop& hop : route) {
      if (hop.path == Path::none) continue;
      last = timeline_.add(lane, purpose, hop.seconds, last == kNothing ? after : std::vector<Id>{last}, hop.path);
      if (!counted_) continue;
      (purpose == Purpose::gather ? gather_busy_ : reduction_busy_) += hop.seconds;
      host_nbytes_ += hop.host_nbytes;
    }
    return last;
  }
  Lane reduce_lane() const { return of_.manner.two_channels ? Lane::reductions : Lane::gathers; }
  const UnitOffload& offload(size_t unit) const {
    static const UnitOffload kNone = {};
    return unit < of_.offload.units.size() ? of_.offload.units[unit] : kNone;
  }
  double bus_seconds(double nbytes) const { return nbytes / (of_.cluster.host.bus * of_.calibration.bus); }
  double disk_seconds(double nbytes, bool read) const {
    const double rate = read ? of_.cluster.host.disk_read : of_.cluster.host.disk_write;
    return rate > 0 ? nbytes * ranks_of_host() / (rate * of_.calibration.disk) : 0;
  }
  int ranks_of_host() const { return std::min(of_.cluster.gpus_per_host, of_.layout.mesh.world()); }

  // Actions of the schedule: gathers are issued when what was computed before them is over.
  void carry_out(const std::vector<Action>& actions, bool backward) {
    for (const Action& action : actions) {
      if (action.verb != Action::Verb::gather || !on_timeline_) continue;
      const auto unit = static_cast<size_t>(action.unit);
      std::vector<Id> after = {last_compute_};
      if (const UnitOffload& off = offload(unit); off.weights > 0) {
        if (off.disk_weights > 0) {
          after = {timeline_.add(Lane::disk, Purpose::offload, disk_seconds(off.disk_weights, true), after)};
        }
        if (updated_[unit] != kNothing) after.push_back(updated_[unit]);
        after = {timeline_.add(Lane::weights_in, Purpose::offload, bus_seconds(off.weights), after, Path::bus)};
      }
      const UnitRoute& route = backward ? plans_[unit].backward_gather : plans_[unit].forward_gather;
      const Id gathered = travel(Lane::gathers, Purpose::gather, route, after);
      live_[unit] = gathered != kNothing ? gathered : after.back();
    }
  }

  Id compute(Purpose purpose, double seconds, std::vector<Id> after) {
    return last_compute_ = timeline_.add(Lane::compute, purpose, seconds, std::move(after));
  }

  void pass(GatherSchedule& schedule, bool first_of_step, bool last_of_step) {
    const auto count = static_cast<int>(plans_.size());
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const bool backward = phase == Phase::backward;
      carry_out(schedule.begin(phase), backward);
      for (int step = 0; step < count; ++step) {
        const int unit = backward ? count - 1 - step : step;
        std::vector<int> needed = of_.layout.units[static_cast<size_t>(unit)].borrows;
        needed.push_back(unit);
        // Updated right before its use; where its weights leave the GPU again in between, a little earlier.
        if (on_timeline_ && !backward && first_of_step) {
          for (; updated_up_to_ < count && updated_up_to_ <= unit + ahead_; ++updated_up_to_) {
            update_streamed(static_cast<size_t>(updated_up_to_));
          }
        }
        for (const int each : needed) carry_out(schedule.enter(each), backward);
        if (on_timeline_) {
          if (backward) {
            run_backward(static_cast<size_t>(unit), needed, last_of_step);
          } else {
            run_forward(static_cast<size_t>(unit), needed, first_of_step);
          }
        }
        for (const int each : needed) carry_out(schedule.exit(each), backward);
      }
    }
    carry_out(schedule.finish(), true);
    order_.finish();
  }

  std::vector<Id> lives(const std::vector<int>& needed) const {
    std::vector<Id> after;
    for (const int each : needed) after.push_back(live_[static_cast<size_t>(each)]);
    return after;
  }

  void run_forward(size_t unit, const std::vector<int>& needed, bool first_of_step) {
    if (plans_[unit].has_gradients) order_.expect(static_cast<int>(unit));
    std::vector<Id> after = lives(needed);
    if (first_of_step) {
      if (published_[unit] != kNothing) after.push_back(published_[unit]);
      if (weights_back_[unit] != kNothing) after.push_back(weights_back_[unit]);
    }
    compute(Purpose::compute, of_.units[unit].forward, std::move(after));
  }

  // States of the host come, are updated and go back right before the unit is used again.
  void update_streamed(size_t unit) {
    const UnitOffload& off = offload(unit);
    if (off.streamed <= 0 || decided_ == kNothing) return;
    if (arrived_[unit] == kNothing) bring_states(unit);
    const double moved = moving_seconds(2 * off.streamed, of_.cluster.gpu, of_.calibration);
    const Id done = compute(Purpose::update, moved, {decided_, arrived_[unit]});
    gone_[unit] = timeline_.add(Lane::to_host, Purpose::offload, bus_seconds(off.streamed), {done});
    updated_[unit] = gone_[unit];
    arrived_[unit] = kNothing;
    in_ring_.push_back(unit);
    if (ring_holds_all_) bring_states(unit);
  }
  void bring_states(size_t unit) {
    std::vector<Id> after = {gone_[unit]};
    double room = of_.offload.ring - offload(unit).streamed;
    // What is still in the ring must have left it, but for what it holds beside.
    for (auto each = in_ring_.rbegin(); each != in_ring_.rend(); ++each) {
      room -= offload(*each).streamed;
      if (room >= 0) continue;
      after.push_back(gone_[*each]);
      break;
    }
    arrived_[unit] =
        timeline_.add(Lane::states_in, Purpose::offload, bus_seconds(offload(unit).streamed), after, Path::bus);
  }

  void run_backward(size_t unit, const std::vector<int>& needed, bool last_of_step) {
    std::vector<Id> after = lives(needed);
    const UnitPlan& plan = plans_[unit];
    if (static_cast<int>(slots_.size()) >= of_.manner.reduce_slots) {
      after.push_back(slots_.front());
      slots_.pop_front();
    }
    if (of_.manner.waits) after.push_back(last_reduction_);
    const Id computed = compute(Purpose::compute, of_.units[unit].backward, std::move(after));
    if (!plan.has_gradients) return;
    for (const int ready : order_.ready(static_cast<int>(unit))) {
      reduce(static_cast<size_t>(ready), computed, last_of_step);
    }
  }

  void reduce(size_t unit, Id computed, bool last_of_step) {
    const UnitPlan& plan = plans_[unit];
    Id reduced = kNothing;
    const auto send = [&](const UnitRoute& route) {
      const Id done = travel(reduce_lane(), Purpose::reduction, route, {computed});
      if (done != kNothing) reduced = done;
    };
    send(plan.reduce);
    if (last_of_step) {
      send(plan.late_reduce);
      send(plan.share);
    }
    if (reduced != kNothing) {
      slots_.push_back(reduced);
      last_reduction_ = reduced;
    }
    if (const UnitOffload& off = offload(unit); off.host_gradient > 0 && of_.offload.early_gradients) {
      gradient_home_[unit] =
          timeline_.add(Lane::to_host, Purpose::offload, bus_seconds(off.host_gradient), {computed, reduced});
    }
  }

  void finish_step() {
    updated_up_to_ = 0;
    const int ranks = of_.layout.mesh.world();
    std::vector<Id> after = {last_compute_, last_reduction_};
    if (ranks > 1) {  // the sums of squares of all ranks
      const bool between = ranks > of_.cluster.gpus_per_host;
      const double hops = std::ceil(std::log2(ranks));
      const double latency = between ? of_.cluster.between.latency : of_.cluster.inside.latency;
      after = {timeline_.add(reduce_lane(), Purpose::reduction, hops * latency, after,
                             between ? Path::between : Path::inside)};
    }
    slots_.clear();
    double nbytes = 0;
    for (size_t unit = 0; unit < plans_.size(); ++unit) {
      const UnitOffload& off = offload(unit);
      const double elsewhere = off.host_numel + (off.streamed > 0 && plans_[unit].updated_numel > 0
                                                     ? static_cast<double>(plans_[unit].updated_numel) - off.host_numel
                                                     : 0);
      nbytes += std::max(0.0, static_cast<double>(plans_[unit].updated_numel) - elsewhere) * of_.update_nbytes;
    }
    const Id updated = compute(Purpose::update, moving_seconds(nbytes, of_.cluster.gpu, of_.calibration), after);
    decided_ = updated;
    for (size_t unit = 0; unit < plans_.size(); ++unit) {
      published_[unit] = travel(Lane::gathers, Purpose::gather, plans_[unit].publish, {updated});
    }
    for (size_t unit = 0; unit < plans_.size(); ++unit) update_on_host(unit);
    write_back();
  }

  void update_on_host(size_t unit) {
    const UnitOffload& off = offload(unit);
    if (off.host_numel <= 0) return;
    std::vector<Id> after = {decided_};
    if (gradient_home_[unit] != kNothing) {
      after.push_back(gradient_home_[unit]);
    } else if (off.host_gradient > 0) {
      after.push_back(timeline_.add(Lane::to_host, Purpose::offload, bus_seconds(off.host_gradient), {decided_}));
    }
    if (off.disk > 0) {
      after.push_back(timeline_.add(Lane::disk, Purpose::offload, disk_seconds(off.disk, true), {decided_}));
    }
    write_back();  // of the unit before it, behind this one's read
    const double rate = of_.cluster.host.memory_bandwidth * of_.calibration.host_memory / ranks_of_host();
    const Id done = timeline_.add(Lane::host, Purpose::offload, off.host_update / rate, after);
    if (off.disk > 0) unwritten_ = {done, off.disk};
    weights_back_[unit] = off.host_weight > 0 ? timeline_.add(Lane::states_in, Purpose::offload,
                                                              bus_seconds(off.host_weight), {done}, Path::bus)
                                              : done;
    updated_[unit] = weights_back_[unit];
  }

  void write_back() {
    if (unwritten_.first == kNothing) return;
    timeline_.add(Lane::disk, Purpose::offload, disk_seconds(unwritten_.second, false), {unwritten_.first});
    unwritten_.first = kNothing;
  }

  void simulate() {
    const size_t count = plans_.size();
    for (std::vector<Id>* ids : {&live_, &published_, &updated_, &arrived_, &gone_, &gradient_home_, &weights_back_}) {
      ids->assign(count, kNothing);
    }
    double streamed = 0;
    for (size_t unit = 0; unit < count; ++unit) {
      streamed += offload(unit).streamed;
      if (offload(unit).weights > 0) ahead_ = 3;
    }
    ring_holds_all_ = streamed > 0 && streamed <= of_.offload.ring * 1.001;
    std::vector<int64_t> numel;
    for (const UnitPlan& plan : plans_) numel.push_back(plan.gathered_numel);
    GatherSchedule schedule(numel, of_.limits);
    pass(schedule, false, false);  // the first one records the order
    on_timeline_ = true;
    // Of the steps that follow each other the second is measured, from the beginning of its first operation to that of
    // the third's.
    const bool follows_on = of_.offload.any();
    const int before = follows_on ? 2 : 1;
    for (int step = 0; step <= before + 1; ++step) {
      if (step >= before) marks_.push_back(compute(Purpose::compute, 0, {last_compute_}));
      if (step == before + 1) break;
      counted_ = step == before;
      for (int64_t micro = 0; micro < micro_steps_; ++micro) pass(schedule, micro == 0, micro + 1 == micro_steps_);
      finish_step();
    }
    timeline_.run();
  }

  const StepQuestion& of_;
  int64_t micro_steps_;
  Timeline timeline_;
  std::vector<UnitPlan> plans_;
  ReduceOrder order_{{}};
  std::vector<Id> live_, published_, updated_, arrived_, gone_, gradient_home_, weights_back_;
  std::deque<Id> slots_;
  std::vector<size_t> in_ring_;
  std::vector<Id> marks_;
  std::pair<Id, double> unwritten_ = {kNothing, 0};  // states that the host has updated, and their bytes
  Id last_compute_ = kNothing, last_reduction_ = kNothing, decided_ = kNothing;
  int updated_up_to_ = 0, ahead_ = 0;
  bool on_timeline_ = false, counted_ = false, ring_holds_all_ = false;
  double gather_busy_ = 0, reduction_busy_ = 0, host_nbytes_ = 0;
};

StepTime simulated(const StepQuestion& question, int64_t micro_steps) {
  return StepSimulation(question, micro_steps).measured();
}

}  // namespace

// Micro-steps but for the first and the last are alike, so of many no more than three are simulated.
StepTime step_time(const StepQuestion& question) {
  const int64_t micro_steps = std::max<int64_t>(1, question.gradients.accumulation_steps);
  if (micro_steps <= 3) return simulated(question, micro_steps);
  const StepTime two = simulated(question, 2);
  StepTime time = simulated(question, 3);
  const auto more = static_cast<double>(micro_steps - 3);
  for (double StepTime::*part :
       {&StepTime::seconds, &StepTime::compute, &StepTime::gathers, &StepTime::reductions, &StepTime::update,
        &StepTime::offload, &StepTime::gather_busy, &StepTime::reduction_busy, &StepTime::host_nbytes}) {
    time.*part += more * (time.*part - two.*part);
  }
  return time;
}

Throughput throughput(const StepTime& time, const DecoderShape& shape, const Workload& work, int64_t micro_steps,
                      int data_ranks, const Cluster& cluster) {
  Throughput of;
  if (time.seconds <= 0) return of;
  const double tokens = static_cast<double>(work.tokens()) * static_cast<double>(std::max<int64_t>(1, micro_steps));
  of.tokens_a_gpu = tokens / time.seconds;
  of.tokens = of.tokens_a_gpu * data_ranks;
  of.model_flops = of.tokens_a_gpu * model_flops_a_token(shape, work.time);
  const double peak = work.dtype == DType::f32 ? cluster.gpu.fp32_flops : cluster.gpu.bf16_flops;
  of.mfu = peak > 0 ? of.model_flops / peak : 0;
  return of;
}

}  // namespace shoal::forecast
