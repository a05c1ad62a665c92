"""Turns text into a token file (docs/formats/tokens.md) with a Hugging Face tokenizer.json.

    tokenize.py --tokenizer tokenizer.json TEXT... -o FILE.bin [--eos TOKEN]

Run by `shoal tokenize`. A TEXT is a file of UTF-8 or a folder of them (all below it, in sorted order, hidden ones left out).
Every file is one document: its tokens are what the tokenizer gives for the whole file, without special tokens, and then
the end-of-text token when one is named. Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

import argparse
import errno
import os
import struct
import sys
import time
from array import array
from pathlib import Path

MAGIC = b"SHOALTOK"
VERSION = 1
LARGEST_VOCAB = 1 << 32
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
# A larger document is encoded in pieces, cut at line ends: the tokenizer needs many times the text's memory.
LARGEST_PIECE = 16 << 20


class Failed(Exception):
    """A message of the form `[place] what is wrong. What to do.`"""

    def __init__(self, place, message, code=1):
        super().__init__(f"[{place}] {message}")
        self.code = code


def refuse_lfs_pointer(file, place):
    """What a clone holds of a large file until Git LFS fetches it. The same as src/base/lfs_pointer.cpp."""
    with open(file, "rb") as stream:
        if stream.read(len(LFS_POINTER)) != LFS_POINTER:
            return
    raise Failed(place, "is a pointer of Git LFS and not the file itself. Fetch it: run `git lfs pull` in its folder.", 2)


def text_files(paths):
    files = []
    for path in map(Path, paths):
        if path.is_dir():
            found = []
            for folder, folders, names in os.walk(path):
                folders[:] = [name for name in folders if not name.startswith(".")]
                found += [os.path.join(folder, name) for name in names if not name.startswith(".")]
            files += sorted(found)
        elif path.is_file():
            files.append(str(path))
        else:
            raise Failed(f"tokenize {path}", "does not exist. Give a text file, or a folder of them.", 2)
    files = [file for file in files if os.path.getsize(file) > 0]
    if not files:
        raise Failed("tokenize", "there is no text in what was given. Give a file with text in it.", 2)
    return files


def read_text(file):
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:  # a mark at the beginning is no text
            return stream.read()
    except UnicodeDecodeError as error:
        raise Failed(f"tokenize {file}", f"byte {error.start} is not UTF-8. Convert the file, or leave it out.", 2) from None
    except OSError as error:
        raise Failed(f"tokenize {file}", f"cannot be read: {error.strerror}. Correct the path.", 2) from None


def pieces(text):
    begin = 0
    while len(text) - begin > LARGEST_PIECE:
        end = text.rfind("\n", begin, begin + LARGEST_PIECE) + 1
        end = end if end > begin else begin + LARGEST_PIECE
        yield text[begin:end]
        begin = end
    yield text[begin:]


class TokenFile:
    """Written under a temporary name, renamed by finish(); without it nothing is left behind."""

    def __init__(self, path, vocab):
        self.path, self.vocab, self.count = path, vocab, 0
        self.width = 2 if vocab <= 1 << 16 else 4
        self.temporary = f"{path}.{os.getpid()}.tmp"
        try:
            self.stream = open(self.temporary, "wb")
        except OSError as error:
            raise Failed(f"tokenize {path}", f"cannot be written: {error.strerror}. Give another -o.") from None
        self.stream.write(self.header())

    def header(self):
        return MAGIC + struct.pack("<IIQQ", VERSION, self.width, self.vocab, self.count)

    def append(self, ids):
        tokens = array("H" if self.width == 2 else "I", ids)
        if sys.byteorder == "big":
            tokens.byteswap()
        self.stream.write(tokens.tobytes())
        self.count += len(ids)

    def finish(self):
        self.stream.seek(0)
        self.stream.write(self.header())
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        os.replace(self.temporary, self.path)

    def abandon(self):
        self.stream.close()
        if os.path.exists(self.temporary):
            os.unlink(self.temporary)


class Progress:
    """On a terminal one line that changes; elsewhere a line every 10 seconds."""

    def __init__(self, nbytes):
        self.total, self.done, self.begin = nbytes, 0, time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.next = self.begin + (0.2 if self.terminal else 10)

    def add(self, nbytes):
        self.done += nbytes
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + (0.2 if self.terminal else 10)
        rate = self.done / (now - self.begin)
        left = (self.total - self.done) / rate
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
    files = text_files(options.text)
    progress = Progress(sum(os.path.getsize(file) for file in files))
    output = TokenFile(options.output, vocab)
    try:
        for file in files:
            refuse_lfs_pointer(file, f"tokenize {file}")
            text = read_text(file)
            if len(text) > LARGEST_PIECE:
                print(f"{file} is long: encoded in pieces of {LARGEST_PIECE >> 20} Mi characters, cut at line ends.", file=sys.stderr)
            for piece in pieces(text):
                output.append(tokenizer.encode(piece, add_special_tokens=False).ids)
                progress.add(len(piece.encode()))
            output.append(end)
        progress.finish()
        if output.count == 0:
            raise Failed("tokenize", "the tokenizer gave no token for this text. Check that it belongs to it.")
        output.finish()
    except OSError as error:
        remedy = "Free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Give another -o"
        raise Failed(f"tokenize {options.output}", f"cannot be written: {error.strerror}. {remedy}.") from None
    finally:
        output.abandon()
    return (
        f"{options.output}: {output.count:,} tokens of {output.width} bytes, vocabulary {vocab:,}, "
        f"from {len(files)} file{'' if len(files) == 1 else 's'} of {progress.total / 1e6:.1f} MB"
    )


def main():
    parser = argparse.ArgumentParser(prog="shoal tokenize", description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--eos")
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
