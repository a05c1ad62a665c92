"""A model's chat template: conversations as text, by Jinja itself, and which of it the assistant said.

Templates come with models and are not trusted: they run in Jinja's sandbox, and see nothing but the conversation. What they find
there (filters, functions, names of special tokens) is what `apply_chat_template` of transformers gives them.

The assistant's part is known exactly or not at all. A template with {% generation %} says it. Otherwise the conversation is rendered
up to each of the assistant's turns, with the prompt that asks for it, and through it: what the second adds to the first is the turn.
"""

import json
import os
import re
import sys
from datetime import datetime

from documents import Failed, refuse_lfs_pointer

# Around what a template marks, while it is rendered once more to find it. Both are noncharacters of Unicode: no text has them.
BEGIN, END = "\ufdd0", "\ufdd1"
USUAL, WITH_TOOLS = "default", "tool_use"  # of several templates: for any row, for a row with tools
ONE_FILE, MORE_FILES = "chat_template.jinja", "additional_chat_templates"  # a file beside the tokenizer, and a folder of NAME.jinja
OWN_TEMPLATE = "Give one in which {% generation %} marks the assistant's words, by --chat-template FILE."


class ChatTemplate:
    def __init__(self, source, place, special_tokens, ends=()):
        """`source`: the text, or a dict of texts by name. `ends`: special tokens, as texts, that may end a turn."""
        try:
            import jinja2  # late: texts are made into tokens without it
        except ImportError:
            raise Failed("tokenize", f"{sys.executable} has no package jinja2. Install it, or set SHOAL_PYTHON.") from None

        self.place, self.special_tokens, self.jinja2 = place, special_tokens, jinja2
        self.ends = sorted((end for end in ends if end), key=len, reverse=True)
        sources = source if isinstance(source, dict) else {USUAL: source}
        self.names = sorted(sources)
        self.environment = _environment(jinja2, lambda: self.marks)
        self.marks = False
        self.templates, self.marked = {}, {}
        for name in (name for name in (USUAL, WITH_TOOLS) if name in sources):  # others are never asked for
            try:
                self.templates[name] = self.environment.from_string(sources[name])
            except jinja2.TemplateError as error:
                which = "the chat template" if self.names == [USUAL] else f"the chat template {name}"
                raise Failed(place, f"{which} is none that Jinja reads: {error}. Correct it.", 2) from None
            self.marked[name] = re.search(r"{%[-+]?\s*generation\s*[-+]?%}", sources[name]) is not None

    def _named(self, tools):
        if tools and WITH_TOOLS in self.templates:
            return WITH_TOOLS
        if USUAL not in self.templates:
            raise Failed(self.place, f"has chat templates {', '.join(self.names)} and none called {USUAL}. Give one by --chat-template FILE.", 2)
        return USUAL

    def render(self, messages, tools=None, prompt=False):
        """The text of a conversation. Raises self.jinja2.TemplateError and what a template's expressions raise."""
        return self.templates[self._named(tools)].render(
            messages=messages, tools=tools, documents=None, add_generation_prompt=prompt, **self.special_tokens)

    def text_and_spans(self, messages, tools, where, first=0):
        """The text, and the spans of it that the assistant said from message `first` on: pairs of begin and end, in characters."""
        try:
            text = self.render(messages, tools)
            if BEGIN in text or END in text:
                raise Failed(where, "holds the noncharacters U+FDD0 or U+FDD1, which are no text. Correct it.", 2)
            if self.marked[self._named(tools)]:
                spans = self._marked_spans(text, messages, tools, where)
                begin = self._end_of_prompt(text, messages[:first], tools, where)
                return text, [(max(span[0], begin), span[1]) for span in spans if span[1] > begin]
            return text, self._spans_by_prefix(text, messages, tools, where, first)
        except Failed:
            raise
        except Exception as error:  # a template may raise anything: it is a program
            raise Failed(where, f"the chat template does not take this conversation: {type(error).__name__}: {error}. Correct the row, or leave it out.", 2) from None

    def _marked_spans(self, text, messages, tools, where):
        self.marks = True
        try:
            marked = self.render(messages, tools)
        finally:
            self.marks = False
        if marked.replace(BEGIN, "").replace(END, "") != text:
            raise Failed(where, "the chat template changes what it marks with {% generation %}, so that its place is not known. Correct the template.", 2)
        spans, at, begin = [], 0, None
        for character in marked:
            if character == BEGIN and begin is None:
                begin = at
            elif character == END and begin is not None:
                spans.append((begin, at))
                begin = None
            elif character in (BEGIN, END):
                raise Failed(where, "the chat template marks {% generation %} within {% generation %}. Correct the template.", 2)
            else:
                at += 1
        return spans

    def _end_of_prompt(self, text, prompt, tools, where):
        """Behind messages of which nothing is learned, though the template marks what the assistant says there too."""
        if not any(message["role"] == "assistant" for message in prompt):
            return 0
        for asking in (False, True):  # some templates write something else in place of what asks for a turn
            before = self.render(prompt, tools, asking)
            if text.startswith(before):
                return len(before)
        raise Failed(where, "the chat template writes the prompt otherwise when the completion follows, so where the completion begins is not known. "
                            "Leave the assistant's turns out of the prompt, or correct the template.", 2)

    def _spans_by_prefix(self, text, messages, tools, where, first):
        spans = []
        for index, message in enumerate(messages):
            if message["role"] != "assistant" or index < first:
                continue
            before = self.render(messages[:index], tools, prompt=True) if index > 0 or self._takes_nothing(tools) else ""
            words = message["content"].strip() if isinstance(message.get("content"), str) else ""
            after = text[len(before):]
            if not text.startswith(before):
                raise Failed(where, f"the chat template does not write turn {index + 1} behind its own prompt for it, so what the assistant said is not known. {OWN_TEMPLATE}", 2)
            # A template that does not ask for the turn, as [INST] templates: its words must come first.
            asked = index > 0 and before != self.render(messages[:index], tools)
            if not asked and not after.lstrip().startswith(words):
                raise Failed(where, f"the chat template has no generation prompt, and writes something before the words of turn {index + 1}. {OWN_TEMPLATE}", 2)
            begin, end = len(before), self._end_of(text, len(before), messages[: index + 1], words, tools)
            if end is None:
                raise Failed(where, f"the chat template writes turn {index + 1} otherwise when others follow, so where it ends is not known. {OWN_TEMPLATE}", 2)
            if spans and begin < spans[-1][1]:
                raise Failed(where, f"the chat template joins turn {index + 1} to one before it. {OWN_TEMPLATE}", 2)
            spans.append((begin, end))
        return spans

    def _takes_nothing(self, tools):
        try:
            self.render([], tools, prompt=True)
        except Exception:  # many templates look at the first message
            return False
        return True

    def _end_of(self, text, begin, through, words, tools):
        """Behind the turn and the special token that ends it; a line end behind that token belongs to nobody. None: not known."""
        whole = self.render(through, tools)
        if text.startswith(whole) and len(whole) >= begin:
            stripped = whole.rstrip()
            return len(stripped) if len(stripped) > begin and stripped.endswith(tuple(self.ends)) else len(whole)
        # Some templates write thoughts into the last turn alone. The words themselves, then a special token, are as sure.
        at = begin + len(text[begin:]) - len(text[begin:].lstrip())
        if not words or not text.startswith(words, at):
            return None
        at += len(words)
        end = next((end for end in self.ends if text.startswith(end, at)), None)
        return at + len(end) if end else None


def learned_tokens(text, offsets, spans, where):
    """A 1 for each token that lies in a span, as bytes. White space at an edge of a token belongs to the rest of it."""
    learned = bytearray(len(offsets))
    at = 0
    for index, (begin, end) in enumerate(offsets):
        while begin < end and text[begin].isspace():
            begin += 1
        while begin < end and text[end - 1].isspace():
            end -= 1
        if begin == end:  # nothing but white space: by its begin
            begin = offsets[index][0]
            end = begin + 1
        while at < len(spans) and spans[at][1] <= begin:
            at += 1
        if at == len(spans) or end <= spans[at][0]:
            continue
        if begin < spans[at][0] or end > spans[at][1]:
            raise Failed(where, f"the token {text[begin:end]!r} is partly the assistant's: the tokenizer joins it with what stands beside. "
                                "Put a special token or a line end between them in the template.", 2)
        learned[index] = 1
    return bytes(learned)


def load_chat_template(folder, tokenizer_file, ends, override=None):
    """The template of a folder with a tokenizer, or the one of a file. None where there is none."""
    config = _json_of(os.path.join(folder, "tokenizer_config.json"))
    special = {**_json_of(os.path.join(folder, "special_tokens_map.json")), **config}
    special = {name: value["content"] if isinstance(value, dict) else value for name, value in special.items()
               if name.endswith("_token") and (isinstance(value, str) or isinstance(value, dict) and isinstance(value.get("content"), str))}
    if override is not None:
        return ChatTemplate(_text_of(override, f"--chat-template {override}"), f"--chat-template {override}", special, ends)
    own = _own_files(folder)  # before what tokenizer_config.json has
    if own:
        place = own[USUAL] if list(own) == [USUAL] else folder or "."
        return ChatTemplate({name: _text_of(file, file) for name, file in own.items()}, place, special, ends)
    source = config.get("chat_template")
    if isinstance(source, list):
        source = {one["name"]: one["template"] for one in source if isinstance(one, dict) and "name" in one and "template" in one}
    return ChatTemplate(source, f"--tokenizer {tokenizer_file}", special, ends) if source else None


def _own_files(folder):
    """The files of a model's templates, by their names."""
    one, more = os.path.join(folder, ONE_FILE), os.path.join(folder, MORE_FILES)
    files = {USUAL: one} if os.path.isfile(one) else {}
    try:
        names = sorted(os.listdir(more)) if os.path.isdir(more) else []
    except OSError as error:
        raise Failed(more, f"cannot be read: {error.strerror}. Correct its permissions.", 2) from None
    return files | {name.removesuffix(".jinja"): os.path.join(more, name) for name in names if name.endswith(".jinja")}


def _text_of(file, place):
    if not os.path.isfile(file):
        raise Failed(place, "is not a file. Give a chat template in Jinja.", 2)
    refuse_lfs_pointer(file, place)
    try:
        with open(file, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(place, f"cannot be read: {error}. Give a chat template in Jinja.", 2) from None


def _json_of(file):
    if not os.path.isfile(file):
        return {}
    try:
        with open(file, encoding="utf-8") as stream:
            value = json.load(stream)
    except (OSError, ValueError, RecursionError) as error:
        raise Failed(file, f"is no JSON: {error}. Fetch it again.", 2) from None
    return value if isinstance(value, dict) else {}


def _environment(jinja2, marks):
    import jinja2.sandbox
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols

    class Generation(Extension):
        """{% generation %} ... {% endgeneration %} around the assistant's words."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

        def _write(self, caller):
            return BEGIN + caller() + END if marks() else caller()

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    now = datetime.now()  # one date in all rows of a file
    environment.globals["strftime_now"] = now.strftime
    return environment
