"""deepspeed.monitor: numbers of a run to TensorBoard, CSV files and Weights & Biases, on rank 0."""
