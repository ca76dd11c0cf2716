"""Language models that answer in chats, in words: how likely held-out answers are, and code that asks for one."""

from __future__ import annotations

from dataclasses import replace

from tasks.task_types.interfaces import Code
from tasks.task_types.next_words.view import VIEW as OF_NEXT_WORDS
from tasks.task_types.next_words.view import WRITES_ON, prompt_argument

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
        'print(tokenizer.decode(found[0, given["input_ids"].shape[1] :], skip_special_tokens=True))',
        export="from jinja2.sandbox import ImmutableSandboxedEnvironment\n\n"
        + ASKS_ONCE
        + 'frame, form = card["frame"], {"trim_blocks": True, "lstrip_blocks": True}\n'
        'jinja = ImmutableSandboxedEnvironment(**form, extensions=["jinja2.ext.loopcontrols"])\n'
        'names = {"bos_token": frame["begin"], "eos_token": frame["end"], "add_generation_prompt": True}\n'
        'asked = jinja.from_string(frame["chat_template"]).render(messages=messages, **names)\n'
        "tokens = tokenizer.encode(asked, add_special_tokens=False).ids\n"
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
