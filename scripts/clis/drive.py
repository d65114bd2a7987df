"""Drives real agent CLIs against the scripted model of model.py, and checks what their hooks leave in the log.

Run by scripts/clis.sh, in a network namespace that has only the loopback, under `lanekeeper dev`: DATABASE_URL is that of
a private server. The wiring is that of docs/hooks.md, word for word. Each CLI runs each script headless, in a home and a
project of its own, and of each run this is checked:

- the log has one new session, and its event types are those that are expected, in this order;
- the agent registry has one turn, which is over, and says what ended it;
- nothing is left in the spool, and nothing was rejected.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import model

HOOKS = Path(__file__).resolve().parents[2] / "docs" / "hooks.md"
PATIENCE = 180


def snippet(language, mark):
    """The block of docs/hooks.md in this language that has this mark."""
    blocks = re.findall(rf"```{language}\n(.*?)```", HOOKS.read_text(), re.DOTALL)
    found = [block for block in blocks if mark in block]
    if len(found) != 1:
        sys.exit(f"docs/hooks.md has {len(found)} blocks with {mark}")
    return found[0]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


STARTED = ["session_start", "user_prompt_submit"]
TOOL = ["tool_use", "tool_done"]


class Cli:
    """One CLI. `expected`: by script, the event types of its session and the native event that ends its turn, as often
    as there are orders that are right."""

    def __init__(self, tools, base, url):
        self.program = tools / self.name
        self.home = base / self.name / "home"
        self.project = base / self.name / "project"
        self.url = url
        self.home.mkdir(parents=True)
        self.project.mkdir(parents=True)
        # A repository of its own: CLIs look for one in the folders above.
        subprocess.run(["git", "init", "--quiet", str(self.project)], check=True)
        self.env = {
            key: value for key, value in os.environ.items()
            if key in ("PATH", "DATABASE_URL", "LANG", "TERM", "TMPDIR", "LD_LIBRARY_PATH")
        }
        self.env |= {"HOME": str(self.home), "CI": "1"}
        self.wire()

    def version(self):
        ran = subprocess.run([self.program, "--version"], env=self.env, capture_output=True, text=True, timeout=60)
        return ran.stdout.strip().split("\n")[-1]

    def run(self, script):
        """Runs it to its end. With the script `wait` it is interrupted, as by Ctrl-C, once its prompt is in the log."""
        before = sessions()
        command = [str(self.program), *self.arguments(f"scripted: {script}")]
        pipe = subprocess.PIPE
        running = subprocess.Popen(
            command, cwd=self.project, env=self.env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True,
            start_new_session=True,
        )
        try:
            if script == "wait":
                prompted(before)
                os.killpg(running.pid, signal.SIGINT)
            out, err = running.communicate(timeout=PATIENCE)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(command, running.returncode, out, err)


class ClaudeCode(Cli):
    name, cli = "claude", "claude-code"
    expected = {
        "hello": [(STARTED + ["agent_stop", "session_end"], "Stop")],
        "tool": [(STARTED + TOOL + ["agent_stop", "session_end"], "Stop")],
        # It starts both hooks at once.
        "fail": [
            (STARTED + ["error", "session_end"], "StopFailure"),
            (STARTED + ["session_end", "error"], "SessionEnd"),
        ],
        "wait": [(STARTED + ["session_end"], "SessionEnd")],
    }

    def wire(self):
        write(self.project / ".claude" / "settings.json", snippet("json", "--cli claude-code"))
        self.env |= {
            "ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "scripted", "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def arguments(self, prompt):
        return ["-p", prompt, "--allowedTools", "Bash", "--model", "claude-sonnet-4-5"]


class Codex(Cli):
    name, cli = "codex", "codex"
    expected = {
        "hello": [(STARTED + ["agent_stop", "session_end"], "Stop")],
        "tool": [(STARTED + TOOL + ["agent_stop", "session_end"], "Stop")],
        "fail": [(STARTED + ["session_end"], "SessionEnd")],
        "wait": [(STARTED + ["agent_stop", "session_end"], "Interrupt")],
    }

    def wire(self):
        write(self.home / ".codex" / "hooks.json", snippet("json", "--cli codex"))
        config = f"""
model = "scripted"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{self.url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 0
stream_max_retries = 0
"""
        write(self.home / ".codex" / "config.toml", config)
        self.env["SCRIPTED_KEY"] = "scripted"

    def arguments(self, prompt):
        # Without a person who trusts the hooks in its terminal UI, Codex runs none.
        trust = ["--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox"]
        return ["exec", "--skip-git-repo-check", *trust, prompt]


class Gemini(Cli):
    name, cli = "gemini", "gemini"
    expected = {
        "hello": [(STARTED + ["agent_stop", "session_end"], "AfterAgent")],
        "tool": [(STARTED + TOOL + ["agent_stop", "session_end"], "AfterAgent")],
        "fail": [(STARTED + ["session_end"], "SessionEnd")],
        "wait": [(STARTED + ["session_end"], "SessionEnd")],
    }

    def wire(self):
        write(self.project / ".gemini" / "settings.json", snippet("json", "--cli gemini"))
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
            "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        }
        write(self.home / ".gemini" / "settings.json", json.dumps(settings))
        self.env |= {
            "GOOGLE_GEMINI_BASE_URL": self.url, "GEMINI_API_KEY": "scripted", "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    def arguments(self, prompt):
        return ["-p", prompt, "-m", "gemini-2.5-flash", "--yolo"]


class OpenCode(Cli):
    name, cli = "opencode", "opencode"
    expected = {
        "hello": [(STARTED + ["agent_stop"], "session.idle")],
        "tool": [(STARTED + TOOL + ["agent_stop"], "session.idle")],
        # It says twice that it is idle. Interrupted, it says nothing more: there is no such run.
        "fail": [(STARTED + ["error", "agent_stop", "agent_stop"], "session.idle")],
    }

    def wire(self):
        write(self.project / ".opencode" / "plugins" / "lanekeeper.js", snippet("js", "export const Lanekeeper"))
        provider = {
            "npm": "@ai-sdk/anthropic", "name": "scripted", "models": {"scripted": {"name": "scripted"}},
            "options": {"baseURL": f"{self.url}/v1", "apiKey": "scripted"},
        }
        config = {
            "provider": {"scripted": provider}, "model": "scripted/scripted", "autoupdate": False, "share": "disabled",
            "permission": {"bash": "allow"},
        }
        write(self.project / "opencode.json", json.dumps(config))
        # It looks for packages of its plugins, and would try again for more than a minute.
        self.env |= {
            "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "NPM_CONFIG_FETCH_RETRIES": "0",
        }
        write(self.home / ".npmrc", "fetch-retries=0\n")

    def arguments(self, prompt):
        return ["run", prompt]


def lanekeeper(*arguments, env=None):
    ran = subprocess.run(["lanekeeper", *arguments], capture_output=True, text=True, timeout=60, env=env)
    if ran.returncode != 0:
        raise RuntimeError(f"lanekeeper {' '.join(arguments)}: {ran.stderr}")
    return [json.loads(line) for line in ran.stdout.splitlines()]


def sessions():
    listed = lanekeeper("session", "list", "--stream", "hooks", "--limit", "1000", "--output", "json")
    return {one["session"]: one for one in listed}


def prompted(before):
    """Waits until a session that was not there before has its prompt."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if any(name not in before and has_prompt(name) for name in sessions()):
            return
        time.sleep(0.2)
    raise RuntimeError("no prompt arrived")


def has_prompt(session):
    events = lanekeeper("tail", "hooks", session, "--output", "json")
    return any(event["event_type"] == "user_prompt_submit" for event in events)


def settled(session):
    """The session, once everything of it is delivered."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        seen = sessions().get(session)
        if seen and seen["behind"] == 0 and seen["registry"]:
            return seen
        time.sleep(0.2)
    raise RuntimeError(f"session {session} is not delivered within 30 s")


def check(cli, script, before):
    """Problems of the session that this run left, and what it had."""
    new = {name: one for name, one in sessions().items() if name not in before}
    if len(new) != 1:
        return [f"{len(new)} new sessions: {sorted(new)}"], []
    (name,) = new
    events = lanekeeper("tail", "hooks", name, "--output", "json")
    # OpenCode says any number of times whether it is busy.
    kinds = [event["event_type"] for event in events if event["event_type"] != "session_status"]
    registry = settled(name)["registry"]
    problems = []
    if (kinds, registry["turn_ended_by"]) not in cli.expected[script]:
        problems.append(f"events {kinds}, turn ended by {registry['turn_ended_by']}; expected {cli.expected[script]}")
    turn = (registry["turn"], registry["turn_state"], registry["cli"])
    if turn != (1, "idle", cli.cli):
        problems.append(f"turn {turn}, expected {(1, 'idle', cli.cli)}")
    for of in ("--list", "--rejected"):
        left = lanekeeper("spool", of, "--output", "json", env=cli.env)
        if left:
            problems.append(f"spool {of}: {left}")
    return problems, kinds


def drive(cli, log):
    failed = 0
    for script in cli.expected:
        before = sessions()
        began = time.monotonic()
        try:
            ran = cli.run(script)
            log.write(f"== {cli.name} {script}: exit {ran.returncode}\n{ran.stdout}\n{ran.stderr}\n")
            problems, kinds = check(cli, script, before)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            problems, kinds = [str(error)], []
        log.flush()
        took = time.monotonic() - began
        failed += bool(problems)
        print(f"{cli.name:9} {script:6} {'FAILED' if problems else 'ok':6} {took:5.1f} s  {' '.join(kinds)}", flush=True)
        for problem in problems:
            print(f"{'':17}{problem}", flush=True)
    return failed


def main():
    tools, base, chosen = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    url = model.start()
    failed = 0
    with open(base / "log", "w") as log:
        sys.stderr = log
        worker = subprocess.Popen(["lanekeeper", "worker"], stdout=log, stderr=log)
        try:
            for kind in (ClaudeCode, Codex, Gemini, OpenCode):
                if chosen and kind.name not in chosen:
                    continue
                if not (tools / kind.name).exists():
                    print(f"{kind.name:9} is not installed")
                    failed += 1
                    continue
                cli = kind(tools, base, url)
                print(f"{kind.name:9} {cli.version()}", flush=True)
                failed += drive(cli, log)
        finally:
            worker.terminate()
            worker.wait(60)
    print(f"{'FAILED' if failed else 'everything as expected'}; what the CLIs said is in {base / 'log'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
