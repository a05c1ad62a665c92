"""Hugging Face's Trainer on a small Llama with ZeRO-3. Run it on two CPU ranks:

    torchrun --nproc_per_node=2 examples/hf_trainer.py --deepspeed examples/ds_config_zero3.json
"""

import argparse
import tempfile

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments


class Counting(torch.utils.data.Dataset):
    """Sequences that count up from a random number: easy to learn, made on the spot."""

    def __init__(self, samples: int, length: int, vocabulary: int):
        first = torch.randint(0, vocabulary, (samples, 1), generator=torch.Generator().manual_seed(0))
        self.ids = (first + torch.arange(length)) % vocabulary

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index].clone()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--deepspeed", default="examples/ds_config_zero3.json")
    parser.add_argument("--max_steps", type=int, default=30)
    parser.add_argument("--local_rank", type=int, help="given by the command deepspeed; the Trainer knows it already")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            deepspeed=options.deepspeed,
            use_cpu=not torch.cuda.is_available(),
            per_device_train_batch_size=4,
            learning_rate=3e-3,
            max_steps=options.max_steps,
            logging_steps=5,
            save_strategy="no",
            report_to=[],
        )
        config = LlamaConfig(
            vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4
        )
        model = AutoModelForCausalLM.from_config(config)
        trainer = Trainer(model=model, args=arguments, train_dataset=Counting(256, 32, 128))
        trainer.train()


if __name__ == "__main__":
    main()
