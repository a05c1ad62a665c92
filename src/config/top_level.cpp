// The keys at the top level of the config: batch, clipping, communication of gradients, printing.
#include "config/batch.h"
#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {
namespace {

std::vector<Key> batch_keys() {
  return {
      integer(kTrainBatch, Value())
          .at_least(1)
          .at_most(1e18)
          .in("samples")
          .means("Samples that one optimizer step sees over all ranks. Of the three batch keys, the ones left out are "
                 "derived from the others and the number of ranks.")
          .on_auto("the product of the other two and the number of ranks",
                   [](const ConfigContext&, const Settings&) { return Known(); })
          .fills(bound_to([](auto& c) -> auto& { return c.batch.train_batch_size; })),
      integer(kMicroBatch, Value())
          .at_least(1)
          .at_most(1e6)
          .in("samples")
          .means("Samples of one micro-step on one rank.")
          .on_auto("the caller's micro-batch; else derived; else 1",
                   [](const ConfigContext& c, const Settings&) { return Known(c.micro_batch_size); })
          .fills(bound_to([](auto& c) -> auto& { return c.batch.micro_batch_size; })),
      integer(kAccumulation, Value())
          .at_least(1)
          .at_most(1e6)
          .in("micro-steps")
          .means("Micro-steps whose gradients one optimizer step takes together.")
          .on_auto("the caller's count; else derived; else 1",
                   [](const ConfigContext& c, const Settings&) { return Known(c.accumulation_steps); })
          .fills(bound_to([](auto& c) -> auto& { return c.batch.accumulation_steps; })),
  };
}

std::vector<Key> gradient_keys() {
  return {
      number("gradient_clipping", 1.0)
          .at_least(0)
          .means(
              "The largest L2 norm of the whole gradient; a larger one is scaled down to it. 0 switches clipping off.")
          .on_auto("the caller's norm; else the default",
                   [](const ConfigContext& c, const Settings&) { return Known(c.gradient_clipping); })
          .fills(bound_to([](auto& c) -> auto& { return c.gradient_clipping; })),
      text("communication_data_type", Value())
          .dtype()
          .means(
              "The dtype in which gradients travel between ranks. null: the dtype of the parameters at accumulation 1, "
              "fp32 above. Sums are taken in fp32 whatever travels.")
          .fills(bound_to([](auto& c) -> auto& { return c.communication_dtype; })),
      boolean("prescale_gradients", false)
          .means("Divide gradients by the number of ranks before they are summed, not after.")
          .fills(bound_to([](auto& c) -> auto& { return c.prescale_gradients; })),
      number("gradient_predivide_factor", 1.0)
          .above(0)
          .means("Divide gradients by this before they are summed, and by the rest of the number of ranks after.")
          .fills(bound_to([](auto& c) -> auto& { return c.gradient_predivide_factor; })),
      text("gradient_allreduce_op", "mean")
          .one_of({"mean", "sum"})
          .means("Whether the gradient of a step is the mean over ranks or the sum. Beside \"sum\" the two keys above "
                 "have "
                 "no effect, as in DeepSpeed.")
          .fills({[](Config& c, const Value& value) { c.gradient_sum = value.as_text() == "sum"; },
                  [](const Config& c) { return Value(c.gradient_sum ? "sum" : "mean"); }}),
  };
}

std::vector<Key> printing_keys() {
  return {
      integer("steps_per_print", Value())
          .at_least(0)
          .in("steps")
          .means("Print the step line every so many steps. null or 0: never.")
          .fills({[](Config& c, const Value& value) { c.steps_per_print = value.is_null() ? 0 : value.as_integer(); },
                  [](const Config& c) { return c.steps_per_print == 0 ? Value() : Value(c.steps_per_print); }}),
      boolean("wall_clock_breakdown", false)
          .means("Time the parts of a step and print them with the step line.")
          .fills(bound_to([](auto& c) -> auto& { return c.wall_clock_breakdown; })),
      boolean("memory_breakdown", false)
          .means("Print memory at points of a step.")
          .has_no_effect("the package deepspeed carries it out, and `shoal plan` counts memory"),
      boolean("dump_state", false)
          .means("Print the engine's state at start.")
          .has_no_effect(
              "the package deepspeed carries it out; the banner of `shoal train` says what became of a config"),
      text("log_level", Value())
          .means("How much DeepSpeed logs.")
          .has_no_effect("there are no levels; the package deepspeed has the logger \"DeepSpeed\""),
  };
}

std::vector<Key> other_keys() {
  return {
      boolean("managed_gradient_accumulation", true)
          .means(
              "The engine counts micro-steps and decides which of them ends a step. false: each step() ends one, over "
              "all backwards since the last. A loss is divided by gradient_accumulation_steps either way.")
          .fills(bound_to([](auto& c) -> auto& { return c.batch.managed_gradient_accumulation; })),
      text("seq_parallel_communication_data_type", "fp32")
          .dtype()
          .or_null()
          .means("The dtype in which ranks of a sequence-parallel group exchange gradients.")
          .has_no_effect("Shoal has no sequence-parallel groups"),
      boolean("sparse_gradients", false)
          .means("Exchange gradients of embeddings as index and value.")
          .has_no_effect("gradients travel dense, with the same sums"),
      boolean("disable_python_gc", false)
          .means("Switch off Python's collector of unused objects.")
          .has_no_effect("nothing of a step waits for the collector"),
      boolean("disable_allgather", false)
          .means("Nothing, in DeepSpeed either.")
          .has_no_effect("DeepSpeed reads this key and does nothing with it"),
      boolean("dataloader_drop_last", false)
          .means("Drop the last incomplete batch of DeepSpeed's data loader.")
          .has_no_effect("batches are made by the caller, not by the engine"),
      boolean("graph_harvesting", false)
          .means("Capture a training graph.")
          .has_no_effect("kernels are launched one by one, with the same results"),
      boolean("zero_allow_untested_optimizer", false)
          .means("Allow optimizers that DeepSpeed has not tested with ZeRO.")
          .has_no_effect("every optimizer that Shoal accepts is tested at every stage"),
      boolean("zero_force_ds_cpu_optimizer", true)
          .means("Insist on DeepSpeed's CPU optimizers when states are offloaded.")
          .has_no_effect("Shoal updates states with its own kernels"),
      integer("vocabulary_size", Value())
          .at_least(1)
          .in("tokens")
          .means("The size of the vocabulary, for a warning about alignment.")
          .has_no_effect("Shoal pads flats, so no size of vocabulary is worth a warning"),
      boolean("use_data_before_expert_parallelism", false)
          .means("The order of expert-parallel ranks.")
          .has_no_effect("there are no expert-parallel ranks"),
      integer("sequence_parallel_size", Value())
          .at_least(1)
          .means("Ranks that share one sequence.")
          .is_refused("is not supported yet. Remove the key; for long sequences recompute activations, with "
                      "activation_checkpointing.cpu_checkpointing.")
          .off_at(1),
      integer("data_parallel_size", Value())
          .at_least(1)
          .means("Ranks that take different samples.")
          .is_refused("is not supported: the data-parallel size is the number of ranks. Remove the key."),
  };
}

}  // namespace

std::vector<Section> top_level_sections() {
  Section top;
  top.meaning = "Batch, gradients and printing.";
  for (const auto& make : {batch_keys, gradient_keys, printing_keys, other_keys}) {
    for (Key& key : make()) top.keys.push_back(std::move(key));
  }
  Section timers{.path = "timers", .meaning = "DeepSpeed's timers.", .keys = {}};
  Section throughput{
      .path = "timers.throughput",
      .meaning = "The throughput timer.",
      .keys = {
          boolean("enabled", true)
              .means("Measure samples a second.")
              .has_no_effect("the package deepspeed carries it out, every steps_per_print steps"),
          boolean("synchronized", true)
              .means("Synchronize the device for each measurement.")
              .has_no_effect(
                  "the package deepspeed carries it out; the engine itself never waits for a device to time it"),
      }};
  return {std::move(top), std::move(timers), std::move(throughput)};
}

}  // namespace shoal::config
