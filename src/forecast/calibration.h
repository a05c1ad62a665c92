// How much of what the makers promise is reached: the constants of a forecast. One set for all machines and engines,
// fitted by bench_step_time_fit on the points of bench/step_times.json; unit_forecast fails when they are no longer
// those of the fit. docs/scaling.md has what is left of an error. Pure.
#pragma once

namespace shoal::forecast {

struct Calibration {
  // Fitted.
  double matmul = 0.85;        // of the peak, that a large matrix product reaches on a GPU that has power for it
  double tflops_a_watt = 1.1;  // above so many bf16 TFLOP/s a watt the clock falls: see power_share()
  double half_rows = 200;      // a product with so many rows, or columns, or terms, reaches half of that
  double attention = 0.45;     // of a large product's rate, that attention reaches
  double inside = 0.75;        // of a link inside a host
  double between = 0.75;       // of the network of a host
  double shared = 0.12;        // of computing that is lost while a collective runs beside it
  double elementwise = 1.0;    // bytes of elementwise operations, of those that work.cpp counts

  // Measured by us one by one, and not fitted: bench/results/*-h200-*.
  double memory = 0.92;       // of the memory bandwidth, by kernels that only move
  double launch = 2.5e-6;     // seconds a kernel in which the GPU has none
  double bus = 0.88;          // of a bus each way, with both ways in use
  double host_memory = 0.75;  // of a host's memory bandwidth, by its update
  double disk = 0.9;          // of a disk
};

// Power goes with the third power of the clock, nearly: a GPU that could multiply faster than it may draw power for
// runs at the third root of the share that it has.
double power_share(const Calibration& calibration, double bf16_flops, double watts);

// As fitted.
const Calibration& fitted_calibration();

}  // namespace shoal::forecast
