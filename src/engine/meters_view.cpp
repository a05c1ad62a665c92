// See include/shoal/meters_view.h. What is counted, and how, is in meters.h.
#include "shoal/meters_view.h"

#include "engine/engine_impl.h"
#include "engine/out_of_memory.h"

namespace shoal {

MemoryReport MetersView::memory() const { return engine_->meters.memory(); }
Traffic MetersView::traffic() const { return engine_->meters.traffic(); }
void MetersView::log_collectives(bool on) const { engine_->meters.log_collectives(on); }
std::vector<CollectiveRecord> MetersView::take_collectives() const { return engine_->meters.take_collectives(); }
std::string MetersView::transport() const { return engine_->meters.transport(); }
double MetersView::waited_seconds() const { return engine_->meters.waited_seconds(); }
CommTimes MetersView::comm_times() const { return engine_->meters.comm_times(); }
DiskTraffic MetersView::disk() const { return engine_->meters.disk(); }
HostTraffic MetersView::host() const { return engine_->meters.host(); }
Error MetersView::explain_out_of_memory(const std::string& phase, const std::string& said) const {
  return explain(engine_->training.out_of_memory(phase, said));
}

}  // namespace shoal
