"""Language models that answer in chats, in words: how likely held-out answers are, and code that asks for one."""

from __future__ import annotations

from dataclasses import replace

from tasks.task_types.interfaces import Code
from tasks.task_types.next_words.view import VIEW as OF_NEXT_WORDS
from tasks.task_types.next_words.view import WRITES_ON, prompt_argument

WRITES_A_CHAT = (
    'frame, form = card["frame"], {"trim_blocks": True, "lstrip_blocks": True}\n'
    'jinja = ImmutableSandboxedEnvironment(**form, extensions=["jinja2.ext.loopcontrols"])\n'
    'jinja.filters["tojson"] = lambda given, **more: json.dumps(given, **{"ensure_ascii": False, **more})\n'
    'template = re.sub(r"({%[-+]?\\s*)generation\\b", r"\\1if true", frame["chat_template"])  # marks for trainings\n'
    'template = re.sub(r"({%[-+]?\\s*)endgeneration\\b", r"\\1endif", template)\n'
    'names = {"bos_token": frame["begin"], "eos_token": frame["end"], "add_generation_prompt": True}\n'
    'names |= {"strftime_now": lambda form: datetime.now().strftime(form), "tools": None, "documents": None}\n'
    "asked = jinja.from_string(template).render(messages=messages, **names)\n"
)
"""Lines that write a chat by the template of a card, as transformers does."""
ASKS_ONCE = 'messages = [{"role": "user", "content": {text}}]\n'
VIEW = replace(
    OF_NEXT_WORDS,
    code=Code(
        text=prompt_argument,
        checkpoint="import torch\n\n" + ASKS_ONCE + "given = tokenizer.apply_chat_template(\n"
        '    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True\n'
        ")\n"
        "with torch.inference_mode():\n"
        "    found = model.generate(**given, max_new_tokens=20, do_sample=False, "
        "pad_token_id=tokenizer.eos_token_id)\n"
        'print(tokenizer.decode(found[0, given["input_ids"].shape[1] :], skip_special_tokens=True, '
        "clean_up_tokenization_spaces=False))",
        export="import re\nfrom datetime import datetime\n\n"
        "from jinja2.sandbox import ImmutableSandboxedEnvironment\n\n"
        + ASKS_ONCE
        + WRITES_A_CHAT
        + "tokenizer.no_truncation()  # the last message stands at the end\n"
        + "tokens = tokenizer.encode(asked, add_special_tokens=False).ids\n"
        + WRITES_ON
        + "print(tokenizer.decode(written))",
        needs=("jinja2",),
    ),
    analysis_title="Likelihood of held-out answers",
    counted={
        "teacher_likelier": "chats whose answers the teacher finds likelier",
        "student_likelier": "chats whose answers the student finds likelier",
    },
    examples={
        "surest": "Chats whose answers became least likely",
        "corrected": "Chats whose answers the student finds likelier",
    },
)
