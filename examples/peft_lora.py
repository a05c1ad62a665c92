"""PEFT's LoRA under ZeRO-3: the frozen base is sharded too. Run it on two CPU ranks:

    torchrun --nproc_per_node=2 examples/peft_lora.py --deepspeed examples/ds_config_zero3.json
"""

import argparse
import tempfile

import torch
from peft import LoraConfig, get_peft_model
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
    parser.add_argument("--save", help="a folder for the adapters; default: they are thrown away")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            deepspeed=options.deepspeed,
            use_cpu=not torch.cuda.is_available(),
            per_device_train_batch_size=4,
            learning_rate=1e-2,
            max_steps=options.max_steps,
            logging_steps=5,
            save_strategy="no",
            report_to=[],
        )
        config = LlamaConfig(
            vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4
        )
        # After TrainingArguments: from here on models are built sharded.
        base = AutoModelForCausalLM.from_config(config)
        adapters = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
        model = get_peft_model(base, adapters)
        trainer = Trainer(model=model, args=arguments, train_dataset=Counting(256, 32, 128))
        trainer.train()
        if options.save:
            trainer.save_model(options.save)  # adapter_model.safetensors: the adapters alone


if __name__ == "__main__":
    main()
