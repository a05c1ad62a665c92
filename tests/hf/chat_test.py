"""Conversations: from rows to tokens, to a trained and exported model, against transformers.

    chat_test.py SHOAL [unittest arguments]

Tokenizers and templates are made here; the templates have the shapes of public ones. Tokens must be those of transformers'
`apply_chat_template`, the mask must lie on what the assistant said, and the loss of a packed run must be that of transformers over
each conversation alone.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, PreTrainedTokenizerFast
from transformers.utils import logging

import chat_template
from documents import Failed

SHOAL = None
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|header|>", "<|end_header|>", "<|eot|>", "[INST]", "[/INST]", "<turn>", "<end_turn>"]

CHATML = """{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}
{% endif %}"""
HEADERS = """{{ bos_token }}{% if tools %}{{ '<|header|>system<|end_header|>\n\n' + tools | tojson(indent=2) + '<|eot|>' }}{% endif %}
{%- for message in messages %}
    {{- '<|header|>' + message['role'] + '<|end_header|>\n\n' + message['content'] | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header|>assistant<|end_header|>\n\n' }}{%- endif %}"""
INST = """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"""
TURNS = """{{ bos_token }}{% set first = messages[0]['content'] + '\n\n' if messages[0]['role'] == 'system' else '' %}
{% for message in messages %}{% if message['role'] == 'system' %}{% continue %}{% endif %}
{{ '<turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' + (first if loop.first or loop.index0 == 1 and first else '') + message['content'] + '<end_turn>\n' }}
{% endfor %}{% if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}"""
# Thoughts stand before the last answer alone.
THOUGHTS = """{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}
{%- if message.role == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{{ message.content + '<|im_end|>\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
MARKED = """{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}
{%- if message.role == 'assistant' %}{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
{%- else %}{{ message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"""
# As they are written in one line.
CHATML, INST, TURNS = (text.replace("\n{", "{") for text in (CHATML, INST, TURNS))
TEMPLATES = {"chatml": CHATML, "headers": HEADERS, "inst": INST, "turns": TURNS, "thoughts": THOUGHTS, "marked": MARKED}

TALKS = [
    [{"role": "user", "content": "What is a shard?"}, {"role": "assistant", "content": "A slice of a flat, owned by one rank."}],
    [{"role": "user", "content": " Say it \n again "}, {"role": "assistant", "content": "Again — naïve 😀 text.\n\nTwo lines."},
     {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "A slice of a flat"}],
]
WITH_SYSTEM = [{"role": "system", "content": "Be brief."}, *TALKS[1]]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"é": "<b>"}}}]


def make_tokenizer(folder, template, **more):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=more.pop("trim_offsets", True))
    tokenizer.train_from_iterator([(ROOT / "LICENSE").read_text()], trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIAL, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", **more)
    made.chat_template = template
    made.save_pretrained(folder)
    return made


def read_tokens(path):
    """Documents of a token file: pairs of tokens and a mask, by docs/formats/tokens.md."""
    data = Path(path).read_bytes()
    magic, version, width, _, count = struct.unpack_from("<8sIIQQ", data)
    assert magic == b"SHOALTOK" and version == 2, (magic, version)
    documents, _, masked = struct.unpack("<QQQ", data[-24:])
    tokens = struct.unpack_from(f"<{count}{'H' if width == 2 else 'I'}", data, 32)
    mask = -(-(32 + width * count) // 8) * 8
    ends = struct.unpack_from(f"<{documents}Q", data, len(data) - 24 - 8 * documents)
    bits = [data[mask + i // 8] >> i % 8 & 1 if masked else 1 for i in range(count)]
    return [(list(tokens[begin:end]), bits[begin:end]) for begin, end in zip((0, *ends), ends)]


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write_rows(self, rows, name="chat.jsonl"):
        (self.folder / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        return self.folder / name

    def shoal(self, *words, code=0):
        result = subprocess.run([SHOAL, *map(str, words)], capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout if code == 0 else result.stderr

    def tokenize(self, *words, code=0):
        return self.shoal("tokenize", "--tokenizer", self.folder / "model", "-o", self.folder / "out.bin", *words, code=code)

    def learned_texts(self, tokenizer):
        """What is learned of each document, runs of it apart."""
        found = []
        for tokens, mask in read_tokens(self.folder / "out.bin"):
            runs, run = [], []
            for token, bit in [*zip(tokens, mask), (0, 0)]:
                if bit:
                    run.append(token)
                elif run:
                    runs.append(tokenizer.decode(run))
                    run = []
            found.append(runs)
        return found


class Templates(Folder):
    def ours(self, tokenizer):
        ends = [token.content for token in tokenizer.backend_tokenizer.get_added_tokens_decoder().values() if token.special]
        return chat_template.load_chat_template(str(self.folder / "model"), "model", ends)

    def test_text_and_tokens_are_those_of_transformers(self):
        for name, template in TEMPLATES.items():
            tokenizer = make_tokenizer(self.folder / "model", template)
            ours = self.ours(tokenizer)
            for talk in [*TALKS] + ([WITH_SYSTEM] if name != "inst" else []):
                for tools in (None, TOOLS):
                    for prompt in (False, True):
                        wanted = tokenizer.apply_chat_template(talk, tools=tools, add_generation_prompt=prompt, tokenize=False)
                        self.assertEqual(ours.render(talk, tools, prompt), wanted, name)
            self.write_rows([{"messages": talk, "tools": TOOLS} for talk in TALKS])
            self.tokenize(self.folder / "chat.jsonl")
            wanted = [tokenizer.apply_chat_template(talk, tools=TOOLS, return_dict=False) for talk in TALKS]
            self.assertEqual([tokens for tokens, _ in read_tokens(self.folder / "out.bin")], wanted, name)

    def test_the_mask_lies_on_what_the_assistant_said(self):
        """By each template: the words and what ends the turn, no more."""
        end = {"chatml": "<|im_end|>", "headers": "<|eot|>", "inst": "</s>", "turns": "<end_turn>", "thoughts": "<|im_end|>", "marked": "<|im_end|>"}
        for name, template in TEMPLATES.items():
            for trim in (True, False) if name == "inst" else (True,):
                tokenizer = make_tokenizer(self.folder / "model", template, trim_offsets=trim)
                self.write_rows([{"messages": talk} for talk in TALKS])
                said = self.tokenize(self.folder / "chat.jsonl")
                space, thoughts = " " if name == "inst" else "", "<think>\n\n</think>\n\n" if name == "thoughts" else ""
                words = [[message["content"] for message in talk if message["role"] == "assistant"] for talk in TALKS]
                wanted = [[space + (thoughts if index == len(talk) - 1 else "") + text + end[name] for index, text in enumerate(talk)] for talk in words]
                self.assertEqual(self.learned_texts(tokenizer), wanted, name)
                learned = sum(sum(mask) for _, mask in read_tokens(self.folder / "out.bin"))
                self.assertIn(f"learned: {learned} of ", said)

    def test_generation_marks_are_read_as_transformers_reads_them(self):
        tokenizer = make_tokenizer(self.folder / "model", MARKED)
        self.write_rows([{"messages": talk} for talk in (*TALKS, WITH_SYSTEM)])
        self.tokenize(self.folder / "chat.jsonl")
        for talk, (tokens, mask) in zip((*TALKS, WITH_SYSTEM), read_tokens(self.folder / "out.bin")):
            wanted = tokenizer.apply_chat_template(talk, return_dict=True, return_assistant_tokens_mask=True)
            self.assertEqual((tokens, mask), (wanted["input_ids"], wanted["assistant_masks"]))

    def test_named_templates_and_one_of_a_file(self):
        make_tokenizer(self.folder / "model", CHATML)
        for left in (self.folder / "model").glob("chat_template*"):
            left.unlink()
        config = json.loads((self.folder / "model/tokenizer_config.json").read_text())
        self.write_rows([{"messages": TALKS[0]}])
        self.assertIn("has no chat template", self.tokenize(self.folder / "chat.jsonl", code=2))
        config["chat_template"] = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": HEADERS}]
        (self.folder / "model/tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = AutoTokenizer.from_pretrained(self.folder / "model")
        for tools in (None, TOOLS):
            self.write_rows([{"messages": TALKS[0], "tools": tools}])
            self.tokenize(self.folder / "chat.jsonl")
            self.assertEqual(read_tokens(self.folder / "out.bin")[0][0], tokenizer.apply_chat_template(TALKS[0], tools=tools, return_dict=False))
        (self.folder / "own.jinja").write_text("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}")
        self.tokenize(self.folder / "chat.jsonl", "--chat-template", self.folder / "own.jinja")
        self.assertEqual(tokenizer.decode(read_tokens(self.folder / "out.bin")[0][0]), "".join(message["content"] for message in TALKS[0]))

    def test_templates_of_a_folder_of_their_own(self):
        """As transformers saves several: chat_template.jinja, and the others in additional_chat_templates/."""
        folder = self.folder / "model"
        make_tokenizer(folder, {"default": CHATML, "tool_use": HEADERS, "broken": "{% nothing of Jinja's %}"})
        more = folder / "additional_chat_templates"
        self.assertEqual(sorted(file.name for file in more.iterdir()), ["broken.jinja", "tool_use.jinja"])

        def check():
            tokenizer = AutoTokenizer.from_pretrained(folder)
            self.write_rows([{"messages": talk, "tools": tools} for talk in TALKS for tools in (None, TOOLS)])
            self.tokenize(self.folder / "chat.jsonl")
            wanted = [tokenizer.apply_chat_template(talk, tools=tools, return_dict=False) for talk in TALKS for tools in (None, TOOLS)]
            self.assertEqual([tokens for tokens, _ in read_tokens(self.folder / "out.bin")], wanted)
            return wanted

        wanted = check()
        self.assertNotEqual(wanted[0], wanted[1])
        (more / "default.jinja").write_text(MARKED)  # comes before the file beside the folder
        self.assertNotEqual(check()[1], wanted[0])
        (more / "default.jinja").unlink()
        (folder / "chat_template.jinja").unlink()
        config = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": CHATML}))
        self.write_rows([{"messages": TALKS[0]}])
        with self.assertRaises(ValueError):  # the files alone count
            AutoTokenizer.from_pretrained(folder).apply_chat_template(TALKS[0])
        self.assertIn("has chat templates broken, tool_use and none called default", self.tokenize(self.folder / "chat.jsonl", code=2))
        (more / "tool_use.jinja").write_text("{% nothing of Jinja's %}")
        self.assertIn(f"[{folder}] the chat template tool_use is none that Jinja reads", self.tokenize(self.folder / "chat.jsonl", code=2))

    def test_a_template_without_exact_spans_is_an_error(self):
        row = [{"messages": TALKS[1]}]
        wrong = {
            "so where it ends is not known": "{% for m in messages %}{{ m.role + ':' + m.content }}{% if loop.last and m.role == 'assistant' %}!{% endif %}{% endfor %}"
                            "{% if add_generation_prompt %}assistant:{% endif %}",
            "no generation prompt, and writes something before": CHATML.split("{% if add")[0],
            "behind its own prompt": CHATML.replace("assistant\n", "assistant:<think>\n"),
            "marks {% generation %} within": MARKED.replace("{{ message.content + '<|im_end|>' }}", "{% generation %}x{% endgeneration %}"),
        }
        for message, template in wrong.items():
            make_tokenizer(self.folder / "model", template)
            self.write_rows(row)
            said = self.tokenize(self.folder / "chat.jsonl", code=2)
            self.assertIn("chat.jsonl, line 1]", said)
            self.assertIn(message, said)
            self.assertFalse((self.folder / "out.bin").exists())

    def test_a_token_that_is_partly_the_assistants_is_an_error(self):
        text = "ask:answer"
        self.assertEqual(chat_template.learned_tokens(text, [(0, 4), (4, 10)], [(4, 10)], "x"), b"\0\1")
        self.assertEqual(chat_template.learned_tokens("ask: answer ", [(0, 4), (4, 11), (11, 12)], [(5, 11)], "x"), b"\0\1\0")
        for offsets in ([(0, 3), (3, 10)], [(0, 4), (4, 10)]):
            with self.assertRaisesRegex(Failed, "is partly the assistant's"):
                chat_template.learned_tokens(text, offsets, [(4, 8)], "x")

    def test_templates_run_in_a_sandbox(self):
        make_tokenizer(self.folder / "model", "{{ messages.__class__.__mro__[1].__subclasses__() }}")
        self.write_rows([{"messages": TALKS[0]}])
        self.assertIn("does not take this conversation: SecurityError", self.tokenize(self.folder / "chat.jsonl", code=2))


class Layouts(Folder):
    def setUp(self):
        super().setUp()
        self.tokenizer = make_tokenizer(self.folder / "model", CHATML)

    def texts(self):
        return [self.tokenizer.decode(tokens) for tokens, _ in read_tokens(self.folder / "out.bin")]

    def test_all_layouts_say_the_same(self):
        user, answer = "Why?\n\nBecause.", "So."
        wanted = self.tokenizer.apply_chat_template([{"role": "user", "content": user}, {"role": "assistant", "content": answer}], tokenize=False)
        rows = {
            "messages": {"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": answer, "tool_calls": None}]},
            "sharegpt": {"conversations": [{"from": "human", "value": user}, {"from": "gpt", "value": answer}]},
            "prompt": {"prompt": user, "completion": answer},
            "prompt ": {"prompt": [{"role": "user", "content": user}], "completion": [{"role": "assistant", "content": answer}]},
            "instruction": {"instruction": "Why?", "input": "Because.", "output": answer},
            "instruction ": {"instruction": user, "input": "", "output": answer},
        }
        for layout, row in rows.items():
            self.write_rows([row])
            for named in ("auto", layout.strip()):
                said = self.tokenize(self.folder / "chat.jsonl", "--layout", named)
                self.assertIn(f"from 1 conversation ({layout.strip()}) in 1 file", said)
                self.assertEqual(self.texts(), [wanted], layout)
            self.write_rows([{**row, "system": "Be kind."}, {**row, "system": ""}, {**row, "system": None}])
            self.tokenize(self.folder / "chat.jsonl")
            self.assertEqual(self.texts(), ["<|im_start|>system\nBe kind.<|im_end|>\n" + wanted, wanted, wanted], layout)
            self.assertEqual(self.learned_texts(self.tokenizer), [[answer + "<|im_end|>"]] * 3, layout)
        for row in rows.values():
            self.write_rows([{**row, "system": {"text": "Be kind."}}])
            self.assertIn("line 1] the field 'system' is dict and no text", self.tokenize(self.folder / "chat.jsonl", code=2))

    def test_of_prompt_and_completion_the_completion_alone_is_learned(self):
        """By each way to know spans; the tokens are those of the same talk in one list, and the mask has its last turns."""
        whole = [*WITH_SYSTEM, {"role": "user", "content": "More?"}, {"role": "assistant", "content": "No more."}]
        # What ends a talk, and a mark that has the header in it too.
        ended = MARKED + "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}"
        header = MARKED.replace("{{ '<|im_start|>' + message.role + '\n' }}", "").replace("{{ message.content", "{{ '<|im_start|>' + message.role + message.content")
        for name, template in {**TEMPLATES, "ended": ended, "header": header}.items():
            tokenizer = make_tokenizer(self.folder / "model", template)
            talk = whole[1:] if name == "inst" else whole
            self.write_rows([{"messages": talk}])
            self.tokenize(self.folder / "chat.jsonl")
            [(wanted, _)], [said] = read_tokens(self.folder / "out.bin"), self.learned_texts(tokenizer)
            cuts = range(1, len(talk))
            rows = [{"prompt": talk[:cut], "completion": talk[cut:]} for cut in cuts]
            if talk is whole:
                rows += [{"system": talk[0]["content"], "prompt": talk[1:cut], "completion": talk[cut:]} for cut in cuts]
            self.write_rows(rows)
            self.tokenize(self.folder / "chat.jsonl")
            self.assertEqual([tokens for tokens, _ in read_tokens(self.folder / "out.bin")], [wanted] * len(rows), name)
            learned = [said[-sum(message["role"] == "assistant" for message in row["completion"]):] for row in rows]
            self.assertEqual(self.learned_texts(tokenizer), learned, name)
        self.write_rows([{"prompt": TALKS[0], "completion": [{"role": "user", "content": "And?"}]}])
        self.assertIn("no conversation is left: 1 without a turn", self.tokenize(self.folder / "chat.jsonl", code=2))
        # Of a template that changes its mind about earlier turns nothing is guessed.
        make_tokenizer(self.folder / "model", "{{ messages | length }}" + MARKED)
        self.write_rows([{"prompt": TALKS[1][:3], "completion": TALKS[1][3:]}])
        self.assertIn("so where the completion begins is not known", self.tokenize(self.folder / "chat.jsonl", code=2))
        self.write_rows([{"prompt": TALKS[0][:1], "completion": TALKS[0][1:]}])
        self.tokenize(self.folder / "chat.jsonl")

    def test_prompts_without_a_template(self):
        self.write_rows([{"prompt": "Q: why\nA:", "completion": " so it is"}])
        self.tokenize(self.folder / "chat.jsonl", "--no-template", "--eos", "</s>")
        self.assertEqual(self.texts(), ["Q: why\nA: so it is</s>"])
        self.assertEqual(self.learned_texts(self.tokenizer), [[" so it is</s>"]])
        self.write_rows([{"prompt": "Q:", "completion": " a", "system": system} for system in (None, "Be kind.")])
        self.assertIn("line 2] has a field 'system', which has no place in plain text. Write it into the prompt", self.tokenize(
            self.folder / "chat.jsonl", "--no-template", code=2))
        self.write_rows([{"messages": TALKS[0]}])
        self.assertIn("[--no-template] is for rows of prompt and completion", self.tokenize(self.folder / "chat.jsonl", "--no-template", code=2))

    def test_rows_without_words_are_left_out_and_counted(self):
        self.write_rows([{"messages": TALKS[0]}, {"messages": TALKS[0][:1]}, {"messages": []}, {"messages": TALKS[1]}])
        said = self.tokenize(self.folder / "chat.jsonl")
        self.assertIn("from 2 conversations", said)
        self.assertIn("left out: 2 rows without a turn of the assistant's", said)
        self.write_rows([{"messages": []}])
        self.assertIn("no conversation is left: 1 without a turn", self.tokenize(self.folder / "chat.jsonl", code=2))

    def test_malformed_rows_name_file_and_line(self):
        good = {"messages": TALKS[0]}
        user = {"role": "user", "content": "a"}
        for bad, message in [
            ({"messages": "a"}, "the field 'messages' is str and no list of turns"),
            ({"messages": [user, 3]}, "messages[1] is int and no object"),
            ({"messages": [{"role": "bot", "content": "a"}]}, "the role of messages[0] is 'bot'"),
            ({"messages": [user, {"role": "assistant", "content": [{"type": "image"}]}]}, "messages[1].content is list and no text. Parts that are no text"),
            ({"messages": [user, {"role": "assistant"}]}, "messages[1].content is null and no text"),
            ({"messages": [{"from": "narrator", "value": "a"}]}, "messages[0] is from 'narrator'"),
            ({"messages": [user, {"role": "assistant", "content": "\ud800"}]}, "messages[1].content holds half of a surrogate pair"),
            ({"messages": TALKS[0], "tools": "{"}, "the field 'tools' is no JSON"),
            ({"text": "a"}, "the field 'messages' is null"),
        ]:
            (self.folder / "chat.jsonl").write_text(json.dumps(good) + "\n\n" + json.dumps(bad) + "\n")
            said = self.tokenize(self.folder / "chat.jsonl", code=2)
            self.assertIn(f"chat.jsonl, line 3] {message}", said)
            self.assertFalse((self.folder / "out.bin").exists())
        said = self.tokenize(self.folder / "chat.jsonl", "--skip-malformed")
        self.assertIn("left out: 1 row malformed", said)
        self.assertIn("line 3]", said)
        self.write_rows([{"messages": TALKS[0]}])
        self.assertIn("[--field body] is for rows of texts", self.tokenize(self.folder / "chat.jsonl", "--field", "body", "--layout", "chat", code=2))
        self.assertIn("has no field 'body'", self.tokenize(self.folder / "chat.jsonl", "--field", "body", code=2))
        self.assertIn("[--layout text] is for rows of texts", self.tokenize(self.folder / "chat.jsonl", "--layout", "text", "--no-template", code=2))
        self.write_rows([{"chosen": "a", "rejected": "b"}])
        self.assertIn("holds pairs to prefer one of", self.tokenize(self.folder / "chat.jsonl", code=2))
        self.write_rows([{"instruction": "a", "output": "b"}])
        self.assertIn("Write prompts:FILE in place of chat:FILE", self.tokenize(self.folder / "chat.jsonl", "--layout", "chat", code=2))

    def test_several_processes_write_the_same_file(self):
        self.write_rows([{"messages": [{"role": "user", "content": f"{i} " * (i % 40)}, {"role": "assistant", "content": f"so {i}"}]} for i in range(1500)])
        files = []
        for processes in (1, 2, 3):
            self.tokenize(self.folder / "chat.jsonl", "--processes", processes)
            files.append((self.folder / "out.bin").read_bytes())
        self.assertEqual(files[0], files[1])
        self.assertEqual(files[0], files[2])
        self.assertEqual(len(read_tokens(self.folder / "out.bin")), 1500)


class Training(Folder):
    SEQUENCE = 64
    CONFIG = {"train_batch_size": 6, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW", "params": {"lr": 5e-3}}}

    def setUp(self):
        super().setUp()
        self.tokenizer = make_tokenizer(self.folder / "llama", CHATML)
        torch.manual_seed(1)
        config = LlamaConfig(vocab_size=len(self.tokenizer), hidden_size=48, intermediate_size=128, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(self.folder / "llama")
        self.rows = [{"messages": [{"role": "user", "content": f"What follows {i}?"},
                                   {"role": "assistant", "content": " ".join(str(i + k) for k in range(1, 2 + i % 7))}]} for i in range(150)]
        self.chat = self.write_rows(self.rows, "talks.jsonl")
        (self.folder / "ds.json").write_text(json.dumps(self.CONFIG))

    def train(self, out, *words, data=None):
        return self.shoal("train", "--model", self.folder / "llama", "--data", data or f"chat:{self.chat}", "--config", self.folder / "ds.json",
                          "--sequence", self.SEQUENCE, "--threads", 1, "--out", self.folder / out, *words)

    def metrics(self, out, name="metrics.jsonl"):
        keys = ("step", "loss", "grad_norm", "tokens")
        return [tuple(json.loads(line).get(key) for key in keys) for line in (self.folder / out / name).read_text().splitlines()]

    def loss_by_transformers(self, folder, rows):
        """Over the learned tokens of each conversation alone, as the guide promises."""
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        loss = learned = 0
        self.write_rows(rows, "some.jsonl")
        self.shoal("tokenize", "--tokenizer", self.folder / "llama", "-o", self.folder / "out.bin", self.folder / "some.jsonl")
        for tokens, mask in read_tokens(self.folder / "out.bin"):
            labels = torch.tensor([token if bit else -100 for token, bit in zip(tokens, mask)][1:])
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([tokens])).logits[0, :-1]
            loss += torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum").item()
            learned += (labels >= 0).sum().item()
        return loss / learned

    def test_the_commands_of_the_guide(self):
        said = self.train("tuned", "--steps", 30, "--ranks", 2, "--eval-every", 10, "--eval-batches", 1000)
        self.assertIn("learned: ", said)
        self.assertRegex(said, r"150 conversations packed into \d+ rows of 64 tokens, \d\d\.\d % full; \d\d\.\d % of their tokens are learned")
        losses = [row[1] for row in self.metrics("tuned")]
        self.assertLess(losses[-1], losses[0] - 1)
        self.shoal("checkpoint", "export", self.folder / "tuned", self.folder / "tuned/hf", "--dtype", "fp32")
        for file in (self.folder / "llama").glob("*token*"):
            (self.folder / "tuned/hf" / file.name).write_bytes(file.read_bytes())
        # A row holds several conversations, and the loss is that of each alone: the last twentieth, rounded up, is for validation.
        wanted = self.loss_by_transformers(self.folder / "tuned/hf", self.rows[-8:])
        self.assertAlmostEqual(self.metrics("tuned", "eval.jsonl")[-1][1] / wanted, 1, delta=1e-5)

    def test_the_same_characters_at_every_number_of_ranks_and_stage_and_after_a_resume(self):
        for pack in ("--pack", "--no-pack"):
            one, more = f"one{pack}", f"more{pack}"
            self.train(one, "--steps", 4, "--ranks", 1, "--eval-every", 2, pack)
            self.train(more, "--steps", 4, "--ranks", 3, "--eval-every", 2, "--stop-at", 2, pack)
            self.train(more, "--steps", 4, "--ranks", 2, "--eval-every", 2, "--resume", "auto", pack, "--set", "zero_optimization.stage=2")
            self.assertEqual(self.metrics(more), self.metrics(one))
            self.assertEqual(self.metrics(more, "eval.jsonl"), self.metrics(one, "eval.jsonl"))
        self.assertNotEqual(self.metrics("one--pack"), self.metrics("one--no-pack"))

    def test_the_first_loss_is_the_mean_over_all_learned_tokens_of_the_global_batch(self):
        # One conversation a row, so that a batch of 6 is 6 conversations; a run's order is that of a run with the batch of all.
        rows = self.rows[:6]
        self.write_rows(rows, "six.jsonl")
        for micro, ranks in ((1, 2), (3, 1), (6, 1)):
            self.train(f"six{micro}", "--steps", 1, "--ranks", ranks, "--validation", 0, "--no-pack", "--no-final-save", "--set",
                       f"train_micro_batch_size_per_gpu={micro}", data=f"chat:{self.folder / 'six.jsonl'}")
            self.assertAlmostEqual(self.metrics(f"six{micro}")[0][1] / self.loss_by_transformers(self.folder / "llama", rows), 1, delta=1e-5)

    def test_tokens_are_made_once_and_found_again(self):
        self.train("a", "--steps", 1, "--ranks", 2, "--no-final-save")
        made = list((self.folder / "a/tokens").glob("talks-*.bin"))
        self.assertEqual(len(made), 1)
        ranks = [subprocess.Popen([SHOAL, "train", "--model", self.folder / "llama", "--data", f"chat:{self.chat}", "--config", self.folder / "ds.json",
                                   "--sequence", "64", "--steps", "1", "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(3)]
        said = [rank.communicate(timeout=300)[0] for rank in ranks]  # without --out: beside the file
        self.assertEqual([rank.returncode for rank in ranks], [0, 0, 0], said)
        self.assertEqual(sum("learned: " in text for text in said), 1, "one of them made the tokens")
        self.assertEqual(len(list((self.folder / ".shoal").glob("talks-*.bin"))), 1)
        os.utime(self.chat, (1, 1))  # another file under its name
        self.assertIn("learned: ", self.shoal("train", "--model", self.folder / "llama", "--data", f"chat:{self.chat}", "--config",
                                              self.folder / "ds.json", "--sequence", 64, "--steps", 1, "--threads", 1))

    def test_a_single_row_can_be_packed(self):
        self.write_rows([{"text": "A slice of a flat, owned by one rank. " * 20}], "one.jsonl")
        self.shoal("tokenize", "--tokenizer", self.folder / "llama", "-o", self.folder / "out.bin", self.folder / "one.jsonl")
        [(tokens, mask)] = read_tokens(self.folder / "out.bin")
        self.assertEqual(tokens, self.tokenizer.encode("A slice of a flat, owned by one rank. " * 20, add_special_tokens=False))
        self.assertEqual(set(mask), {1})
        said = self.train("one", "--steps", 1, "--pack", "--validation", 0, "--no-final-save", data=self.folder / "out.bin")
        self.assertRegex(said, r"1 documents? packed into \d+ rows")

    def test_sources_are_mixed_and_wrong_ones_told(self):
        self.shoal("tokenize", "--tokenizer", self.folder / "llama", ROOT / "LICENSE", "-o", self.folder / "text.bin")
        self.shoal("tokenize", "--tokenizer", self.folder / "llama", self.chat, "-o", self.folder / "chat.bin")
        data = f"{self.folder / 'text.bin'}:0.5,{self.folder / 'chat.bin'}:0.5"
        self.train("one", "--steps", 4, "--ranks", 1, data=data)
        self.train("more", "--steps", 4, "--ranks", 3, "--stop-at", 3, data=data)
        self.train("more", "--steps", 4, "--ranks", 1, "--resume", "auto", data=data)
        self.assertEqual(self.metrics("more"), self.metrics("one"))

        def refused(data, *words):
            return self.shoal("train", "--model", self.folder / "llama", "--sequence", 64, "--steps", 1, "--data", data, *words, code=2)

        self.assertIn("does not say what its rows hold. Write chat:", refused(self.chat))
        self.assertIn("text is read as bytes", refused(f"text:{self.chat}"))
        self.assertIn("looks like rows of JSON. Write chat:", refused(f"tokens:{self.chat}"))
        self.assertIn("layout messages. Write chat:FILE", refused(f"prompts:{self.chat}"))
        self.assertIn("does not say where its documents end", refused(f"tokens:{self.folder / 'text.bin'}", "--pack"))
        self.assertIn("is not a file", refused("chat:none.jsonl"))
        (self.folder / "empty.jsonl").write_text("")
        self.assertIn("is empty", refused(f"chat:{self.folder / 'empty.jsonl'}"))
        self.assertIn("a built-in model has none", self.shoal("train", "--model", "llama-tiny", "--steps", 1, "--data", f"chat:{self.chat}", code=2))
        self.assertIn("the checkpoint was made with", self.shoal(
            "train", "--model", self.folder / "llama", "--config", self.folder / "ds.json", "--sequence", 64, "--threads", 1, "--steps", 5, "--out",
            self.folder / "one", "--resume", "auto", "--data", f"{self.folder / 'text.bin'}:0.5,{self.folder / 'chat.bin'}:0.6", code=2))


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    SHOAL = sys.argv.pop(1)
    unittest.main()
