"""Conversations into a token file: each row by the model's chat template, with a mask of what the assistant said.

`make_tokens.py` calls it. Rows are read by this process and made into tokens by several, in batches; their order stays that of the files.
"""

import collections
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from chat_template import learned_tokens, load_chat_template
from conversations import expected_layout, layout_of, messages_of, prompt_and_completion
from documents import Failed, has_rows, rows_of

ROWS_TOGETHER = 256
SMALL = 4 << 20  # bytes of files that one process is quicker with
NO_TURN = "without a turn of the assistant's"
NO_WORDS = "in which the assistant says nothing"
MALFORMED = "malformed (--skip-malformed)"


class RowEncoder:
    """What each process has: the tokenizer and the template."""

    def __init__(self, options, tokenizer, eos):
        from tokenizers import processors

        self.options, self.tokenizer, self.eos, self.template = options, tokenizer, eos, None
        # It adds no token here, and may leave white space out of offsets: a token is to say all that it stands for.
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        if not options.no_template:
            ends = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
            folder = os.path.dirname(options.tokenizer)
            self.template = load_chat_template(folder, options.tokenizer, ends, options.chat_template)
            if self.template is None:
                raise Failed(f"--tokenizer {options.tokenizer}", "has no chat template, neither in tokenizer_config.json nor as "
                             "chat_template.jinja beside it. Give one by --chat-template FILE; prompts and completions may do without: --no-template.", 2)

    def encode(self, rows):
        """For each (row, layout, where): (ids, learned), the reason why it is left out, or the Failed as (place, message, code)."""
        done, texts, waiting = [], [], []
        for row, layout, where in rows:
            try:
                text, spans = self.text_and_spans(row, layout, where)
            except Failed as error:
                done.append((error.place, error.message, error.code))
                continue
            if isinstance(spans, str):
                done.append(spans)
                continue
            waiting.append((len(done), text, spans, where))
            texts.append(text)
            done.append(None)
        for (place, text, spans, where), encoding in zip(waiting, self.tokenizer.encode_batch(texts, add_special_tokens=False)):
            try:
                ids, learned = list(encoding.ids), learned_tokens(text, encoding.offsets, spans, where)
                if self.eos is not None:
                    ids, learned = ids + [self.eos], learned + b"\1"
                done[place] = (ids, learned) if any(learned) else NO_WORDS
            except Failed as error:
                done[place] = (error.place, error.message, error.code)
        return done

    def text_and_spans(self, row, layout, where):
        if self.template is None:
            prompt, completion = prompt_and_completion(row, where)
            return prompt + completion, ([(len(prompt), len(prompt) + len(completion))] if completion else NO_WORDS)
        messages, tools, first = messages_of(row, layout, where)
        if not any(message["role"] == "assistant" for message in messages[first:]):
            return "", NO_TURN
        return self.template.text_and_spans(messages, tools, where, first)


_encoder = None  # of a process of the pool: inherited, since it is a fork


def _encode(rows):
    return _encoder.encode(rows)


def _batches(files, options):
    """Batches of (row, layout, where), with the bytes of all files that are read by then. The first row says the layout."""
    layout, batch, before = None, [], 0
    for file in files:
        for row, where, read in rows_of(file):
            if layout is None:
                layout = expected_layout(row, options.layout, where)
                if options.no_template and layout != "prompt":
                    raise Failed("--no-template", f"is for rows of prompt and completion, and {where} has the layout {layout}. Leave it out.", 2)
            batch.append((row, layout, where))
            if len(batch) == ROWS_TOGETHER:
                yield batch, before + read
                batch = []
        before += os.path.getsize(file)
    if batch:
        yield batch, before


def holds_conversations(files, options):
    """Whether these files are for this program: asked for, or by the fields of the first row where no field of text is there."""
    asked = options.layout not in ("auto", "text") or options.no_template or options.chat_template is not None
    if asked and (options.layout == "text" or options.field != "text"):
        given = "--layout text" if options.layout == "text" else f"--field {options.field}"
        raise Failed(given, "is for rows of texts, and another flag is for conversations. Remove one of them.", 2)
    if asked or options.layout == "text" or options.field != "text":
        return asked
    for file in files:
        if has_rows(file):
            try:
                row = next((row for row, _, _ in rows_of(file)), None)
            except Failed:  # said with the others, when the file is read
                return False
            if row is not None:
                return options.field not in row and (layout_of(row) is not None or "chosen" in row)
    return False


def tokenize_chat(options, files, tokenizer, eos, output, progress):
    """Writes all conversations and returns what to tell the user, in lines."""
    global _encoder
    for file in files:
        if not has_rows(file):
            raise Failed(f"tokenize {file}", "holds no rows. Give conversations as .jsonl or .parquet.", 2)
    if options.eos is not None and not options.no_template:
        raise Failed(f"--eos {options.eos}", "is for texts and --no-template: a chat template ends turns itself. Leave it out.", 2)
    _encoder = RowEncoder(options, tokenizer, eos)
    left_out, layouts, first_bad = collections.Counter(), set(), None
    conversations = 0

    def take(rows, results):
        nonlocal conversations, first_bad
        for (_, layout, _), result in zip(rows, results):
            layouts.add(layout)
            if isinstance(result, str):
                left_out[result] += 1
            elif len(result) == 3:
                if not options.skip_malformed:
                    raise Failed(*result)
                left_out[MALFORMED] += 1
                first_bad = first_bad or f"[{result[0]}] {result[1]}"
            else:
                output.append(*result)
                output.end_document()
                conversations += 1

    processes = options.processes or len(os.sched_getaffinity(0))
    if processes == 1 or options.processes is None and progress.total < SMALL:
        for rows, read in _batches(files, options):
            take(rows, _encoder.encode(rows))
            progress.reach(read)
    else:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # in the processes, which are enough
        # One that is killed breaks the pool, where multiprocessing's own would wait for its rows for ever.
        pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("fork"))
        try:
            pending = collections.deque()
            for rows, read in _batches(files, options):
                pending.append((rows, read, pool.submit(_encode, rows)))
                while len(pending) > 2 * processes:
                    rows, read, result = pending.popleft()
                    take(rows, result.result())
                    progress.reach(read)
            for rows, read, result in pending:
                take(rows, result.result())
                progress.reach(read)
        except BrokenProcessPool:
            raise Failed("tokenize", "a process was killed, maybe for want of memory. Give fewer --processes.") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    if conversations == 0:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items()) or "there is no row"
        raise Failed("tokenize", f"no conversation is left: {reasons}." + (f" The first: {first_bad}" if first_bad else ""), 2)
    lines = [f"from {conversations:,} conversation{'' if conversations == 1 else 's'} ({', '.join(sorted(layouts))})",
             f"learned: {output.learned:,} of {output.count:,} tokens, {100 * output.learned / output.count:.1f} %"]
    if left_out:
        lines.append("left out: " + ", ".join(f"{count:,} row{'' if count == 1 else 's'} {reason}" for reason, count in sorted(left_out.items())))
    if first_bad:
        lines.append(f"the first malformed row: {first_bad}")
    return lines
