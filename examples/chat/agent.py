#!/usr/bin/env python3
"""A small agent in a terminal: it takes prompts as agent CLIs do, by bracketed paste and Enter, reports to the hooks, and
says its answer as one message that grows. It understands "reverse …"; of everything else it counts the words.

Its name is the session's, tg-CHAT: its answers go back into that chat.
"""

import json
import os
import re
import subprocess
import sys
import termios
import time

SESSION = sys.argv[1]
CHAT = SESSION.removeprefix("tg-")
LANEKEEPER = os.environ.get("LANEKEEPER", "lanekeeper")


def run(arguments, given):
    subprocess.run([LANEKEEPER, *arguments], input=json.dumps(given), text=True, check=True, stdout=subprocess.DEVNULL)


def hook(name, **more):
    """As Claude Code calls its hooks."""
    run(["hook", "--cli", "claude-code"],
        {"hook_event_name": name, "session_id": SESSION, "cwd": os.getcwd(), "transcript_path": "", **more})


def answer(key, text, final):
    run(["enqueue", "messages", SESSION, "answer"],
        {"chat": CHAT, "message_key": key, "text": text, "final": final})


def prompts():
    """What was pasted, each time Enter was pressed."""
    typed = b""
    while True:
        read = os.read(0, 65536)
        if not read:
            return
        typed += read
        while match := re.match(rb"(?s).*?\x1b\[200~(.*?)\x1b\[201~[\r\n]", typed):
            typed = typed[match.end():]
            yield match.group(1).replace(b"\r", b"\n").decode()


def main():
    settings = termios.tcgetattr(0)
    settings[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(0, termios.TCSANOW, settings)
    print("\x1b[?2004hagent: I wait for prompts", flush=True)
    hook("SessionStart", source="startup", model="an example")
    for turn, prompt in enumerate(prompts(), 1):
        print(f"agent: {prompt}", flush=True)
        hook("UserPromptSubmit", prompt=prompt)
        key = f"turn-{turn}"
        answer(key, "Thinking …", False)
        time.sleep(2)
        if prompt.startswith("reverse "):
            said = prompt.removeprefix("reverse ")[::-1]
        else:
            said = f"{len(prompt.split())} words in {len(prompt.splitlines())} lines"
        answer(key, said, True)
        hook("Stop", last_assistant_message=said)


main()
