"""Turns text into a token file (docs/formats/tokens.md) with a Hugging Face tokenizer.json.

    make_tokens.py --tokenizer tokenizer.json TEXT... -o FILE.bin [--eos TOKEN] [--field NAME] [--layout NAME] ...

Run by `shoal tokenize`. A TEXT is a file, or a folder of files (all below it, in sorted order, hidden ones left out); documents.py
says what its documents are. The tokens of each are what the tokenizer gives for the whole of it, without special tokens, and then
the end-of-text token when one is named. Rows of conversations go to tokenize_chat.py. Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

import argparse
import errno
import os
import sys
import time

from conversations import GROUPS, LAYOUTS
from documents import Failed, documents_of, find_files, has_rows, refuse_lfs_pointer
from token_file import TokenFile
from tokenize_chat import holds_conversations, tokenize_chat

LARGEST_VOCAB = 1 << 32
# A larger document is encoded in pieces, cut at line ends: the tokenizer needs many times the text's memory.
LARGEST_PIECE = 16 << 20
# Small documents go to the tokenizer together, which takes them in parallel, on all cores.
MOST_TOGETHER = 1024
LARGEST_TOGETHER = 1 << 20  # characters


def pieces(text):
    begin = 0
    while len(text) - begin > LARGEST_PIECE:
        end = text.rfind("\n", begin, begin + LARGEST_PIECE) + 1
        end = end if end > begin else begin + LARGEST_PIECE
        yield text[begin:end]
        begin = end
    yield text[begin:]


class Progress:
    """On a terminal one line that changes; elsewhere a line every 10 seconds."""

    def __init__(self, nbytes):
        self.total, self.done, self.begin = nbytes, 0, time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.next = self.begin + (0.2 if self.terminal else 10)

    def reach(self, nbytes):
        self.done = nbytes
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + (0.2 if self.terminal else 10)
        rate = self.done / (now - self.begin)
        left = (self.total - self.done) / max(rate, 1e-9)
        line = f"{100 * self.done / self.total:5.1f} %  {self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB  {rate / 1e6:.1f} MB/s  {left:.0f} s left"
        print(f"\r\033[K{line}" if self.terminal else line, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def finish(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def load_tokenizer(path):
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise Failed("tokenize", f"{sys.executable} has no package tokenizers. Run make setup, or set SHOAL_PYTHON.") from None
    if not os.path.isfile(path):
        raise Failed(f"--tokenizer {path}", "is not a file. Give the tokenizer.json of the model.", 2)
    refuse_lfs_pointer(path, f"--tokenizer {path}")
    try:
        return Tokenizer.from_file(path)
    except Exception as error:  # the package raises plain Exception
        raise Failed(f"--tokenizer {path}", f"is not a tokenizer.json: {error}. Give that of the model.", 2) from None


def tokenize(options):
    if os.path.isdir(options.tokenizer):
        options.tokenizer = os.path.join(options.tokenizer, "tokenizer.json")
    tokenizer = load_tokenizer(options.tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    vocab = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    if vocab > LARGEST_VOCAB:
        raise Failed(f"--tokenizer {options.tokenizer}", f"has token {vocab - 1}; 32 bits hold no such. Use another.", 2)
    end = []
    if options.eos is not None:
        token = tokenizer.token_to_id(options.eos)
        if token is None:
            raise Failed(f"--eos {options.eos}", "is not a token of this tokenizer. Give one that is.", 2)
        end = [token]
    files = find_files(options.text)
    rows = any(map(has_rows, files))
    if options.field != "text" and not rows:
        raise Failed(f"--field {options.field}", "is for files of rows, .jsonl or .parquet, and there is none. Remove it.", 2)
    progress = Progress(sum(os.path.getsize(file) for file in files))
    conversations = holds_conversations(files, options)
    output = TokenFile(options.output, vocab, masked=conversations, rows=rows)
    documents = 0
    of_chat = []  # lines
    together = []  # documents that wait to be encoded

    def encode():
        for encoding in tokenizer.encode_batch(together, add_special_tokens=False):
            output.append(encoding.ids)
            output.append(end)
            output.end_document()
        together.clear()

    try:
        before = 0  # bytes of the files that are done
        if conversations:
            of_chat = tokenize_chat(options, files, tokenizer, end[0] if end else None, output, progress)
        for file in [] if conversations else files:
            characters = 0
            for text, read in documents_of(file, options.field):
                documents += 1
                if len(text) > LARGEST_TOGETHER:
                    encode()
                    characters = 0
                    if len(text) > LARGEST_PIECE:
                        print(f"{file} has a long text: encoded in pieces of {LARGEST_PIECE >> 20} Mi characters, cut at line ends.", file=sys.stderr)
                    for piece in pieces(text):
                        output.append(tokenizer.encode(piece, add_special_tokens=False).ids)
                        progress.reach(before)
                    output.append(end)
                    output.end_document()
                else:
                    together.append(text)
                    characters += len(text)
                if characters > LARGEST_TOGETHER or len(together) >= MOST_TOGETHER:
                    encode()
                    characters = 0
                    progress.reach(before + read)
            encode()
            before += os.path.getsize(file)
            progress.reach(before)
        progress.finish()
        if output.count == 0 and before == 0:
            raise Failed("tokenize", "there is no text: every file is empty. Check the path.")
        if output.count == 0:
            raise Failed("tokenize", "the tokenizer gave no token for this text. Check that it belongs to it.")
        output.finish()
    except OSError as error:
        remedy = "Free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Give another -o"
        raise Failed(f"tokenize {options.output}", f"cannot be written: {error.strerror}. {remedy}.") from None
    finally:
        output.abandon()
    if rows and not end and not conversations:
        print("nothing marks where a document ends: --eos names the token to put there.", file=sys.stderr)
    of_files = f"{len(files)} file{'' if len(files) == 1 else 's'} of {progress.total / 1e6:.1f} MB"
    if conversations:
        return summary(options, output, vocab, f"{of_chat[0]} in {of_files}", of_chat[1:])
    of_rows = f"{documents:,} document{'' if documents == 1 else 's'} in " if rows else ""
    return summary(options, output, vocab, f"from {of_rows}{of_files}")


def summary(options, output, vocab, source, more=()):
    return "\n".join([f"{options.output}: {output.count:,} tokens of {output.width} bytes, vocabulary {vocab:,}, {source}", *more])


def main():
    parser = argparse.ArgumentParser(prog="shoal tokenize", description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--eos")
    parser.add_argument("--field", default="text")
    parser.add_argument("--layout", choices=("auto", "text", *GROUPS, *LAYOUTS), default="auto")
    parser.add_argument("--chat-template")
    parser.add_argument("--no-template", action="store_true")
    parser.add_argument("--skip-malformed", action="store_true")
    parser.add_argument("--processes", type=int)
    parser.add_argument("text", nargs="+")
    try:
        print(tokenize(parser.parse_args()))
    except Failed as error:
        print(f"shoal: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
