"""A training loop as DeepSpeed's documentation has it. Run it on two CPU ranks, or on a GPU:

    torchrun --nproc_per_node=2 examples/deepspeed_loop.py
    deepspeed --num_gpus=1 examples/deepspeed_loop.py
"""

import deepspeed
import torch
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 10}},
    "zero_optimization": {"stage": 3},
    "gradient_clipping": 1.0,
}


class Net(nn.Module):
    def __init__(self, width: int = 256, depth: int = 4):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(512, 256)
    data = torch.utils.data.TensorDataset(inputs, inputs[:, :1].sin())
    model = Net()
    engine, optimizer, loader, scheduler = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), training_data=data, config=CONFIG
    )
    for epoch in range(3):
        for x, y in loader:
            x, y = x.to(engine.device), y.to(engine.device)
            loss = nn.functional.mse_loss(engine(x), y)
            engine.backward(loss)
            engine.step()
        if engine.global_rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}, step {engine.global_steps}, lr {engine.get_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
