"""Rows of the layouts that people write conversations in, as lists of messages for a chat template.

| layout | fields of a row |
|---|---|
| messages | messages: a list of {role, content}; tools beside it go to the template |
| sharegpt | conversations: a list of {from, value} |
| prompt | prompt and completion: texts, or lists of messages |
| instruction | instruction, input (may be empty or left out), output |

A field `system` beside them is a system message before the others, unless the first of them is one.

`make_tokens.py` calls it. It knows nothing of templates and tokens.
"""

import json

from documents import Failed

GROUPS = {"chat": ("messages", "sharegpt"), "prompts": ("prompt", "instruction")}
LAYOUTS = ("messages", "sharegpt", "prompt", "instruction")
ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
# ShareGPT's names of who speaks.
SPEAKERS = {"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
            "bard": "assistant", "bing": "assistant", "model": "assistant", "tool": "tool", "observation": "tool"}


def layout_of(row):
    """The layout that a row's fields say, or None."""
    if "messages" in row:
        return "messages"
    if "conversations" in row or "conversation" in row:
        return "sharegpt"
    if "prompt" in row and "completion" in row:
        return "prompt"
    if "instruction" in row and "output" in row:
        return "instruction"
    return None


def expected_layout(row, named, where):
    """Of a file whose first row this is. `named`: a layout, a group of GROUPS, or auto."""
    found = layout_of(row)
    if named in LAYOUTS or found is not None and (named == "auto" or found in GROUPS[named]):
        return named if named in LAYOUTS else found
    fields = ", ".join(list(row)[:8]) or "none"
    if found is not None:
        other = "prompts" if named == "chat" else "chat"
        raise Failed(where, f"has fields of the layout {found}. Write {other}:FILE in place of {named}:FILE.", 2)
    if "chosen" in row:
        raise Failed(where, "holds pairs to prefer one of, which is another training. Use a Trainer for them (docs/huggingface.md).", 2)
    raise Failed(where, f"is no conversation that is known. Its fields: {fields}. Known are messages; conversations; prompt and "
                        "completion; instruction and output. Rename them, or name one with --layout.", 2)


def messages_of(row, layout, where):
    """The messages of a row, the tools that it has for them or None, and the number of the first message that may be learned."""
    first = 0
    if layout == "prompt":
        messages, first = _of_prompt(row, where)
    elif layout == "instruction":
        question, more = _text_of(row, "instruction", where), row.get("input")
        if more is not None and not isinstance(more, str):
            raise Failed(where, "the field 'input' is no text. Correct it.", 2)
        messages = [{"role": "user", "content": question + (f"\n\n{more}" if more else "")},
                    {"role": "assistant", "content": _text_of(row, "output", where)}]
    else:
        names = ("messages",) if layout == "messages" else ("conversations", "conversation")
        name = next((name for name in names if name in row), names[0])
        messages = _turns_of(row.get(name), name, where)
    system = _system_of(row, where)
    if system and (not messages or messages[0]["role"] != "system"):
        messages.insert(0, {"role": "system", "content": system})
        first += 1
    return messages, _tools_of(row, where), first


def _of_prompt(row, where):
    """The messages, and how many of them the prompt has."""
    prompt, completion = row.get("prompt"), row.get("completion")
    if isinstance(prompt, list) and isinstance(completion, list):
        return _turns_of(prompt, "prompt", where) + _turns_of(completion, "completion", where), len(prompt)
    return [{"role": "user", "content": _text_of(row, "prompt", where)}, {"role": "assistant", "content": _text_of(row, "completion", where)}], 1


def prompt_and_completion(row, where):
    """Of a row that no template is to be laid over: two texts."""
    if _system_of(row, where):
        raise Failed(where, "has a field 'system', which has no place in plain text. Write it into the prompt, or leave --no-template out.", 2)
    return _text_of(row, "prompt", where), _text_of(row, "completion", where)


def _turns_of(turns, name, where):
    if not isinstance(turns, list):
        raise Failed(where, f"the field {name!r} is {_kind_of(turns)} and no list of turns. Correct it.", 2)
    return [_message_of(turn, f"{name}[{index}]", where) for index, turn in enumerate(turns)]


def _message_of(turn, name, where):
    if not isinstance(turn, dict):
        raise Failed(where, f"{name} is {_kind_of(turn)} and no object. Correct it.", 2)
    if "role" not in turn and "from" in turn:
        role = SPEAKERS.get(turn["from"]) if isinstance(turn["from"], str) else None
        if role is None:
            raise Failed(where, f"{name} is from {turn['from']!r}, which is none of {', '.join(SPEAKERS)}. Rename it.", 2)
        return {"role": role, "content": _checked_text(turn.get("value"), f"{name}.value", where)}
    role = turn.get("role")
    if role not in ROLES:
        raise Failed(where, f"the role of {name} is {role!r}, which is none of {', '.join(ROLES)}. Correct it.", 2)
    message = {key: value for key, value in turn.items() if value is not None}  # Parquet has every field in every row
    if "content" not in message and message.get("tool_calls"):
        message["content"] = ""
    _checked_text(message.get("content"), f"{name}.content", where)
    return message


def _system_of(row, where):
    return None if row.get("system") is None else _checked_text(row["system"], "the field 'system'", where)


def _tools_of(row, where):
    tools = row.get("tools")
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except ValueError as error:
            raise Failed(where, f"the field 'tools' is no JSON: {error}. Correct it.", 2) from None
    if tools is not None and not isinstance(tools, list):
        raise Failed(where, f"the field 'tools' is {_kind_of(tools)} and no list. Correct it.", 2)
    return tools or None


def _text_of(row, field, where):
    if field not in row:
        raise Failed(where, f"has no field {field!r}. Its fields: {', '.join(list(row)[:8]) or 'none'}. Correct it.", 2)
    return _checked_text(row[field], f"the field {field!r}", where)


def _checked_text(text, name, where):
    if not isinstance(text, str):
        more = " Parts that are no text, as images are, cannot be trained on." if isinstance(text, list) else ""
        raise Failed(where, f"{name} is {_kind_of(text)} and no text.{more} Correct it, or leave the row out.", 2)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Failed(where, f"{name} holds half of a surrogate pair, which is no text. Correct it.", 2) from None
    return text


def _kind_of(value):
    return "null" if value is None else type(value).__name__
