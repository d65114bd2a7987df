#!/usr/bin/env python3
"""Prints figures of the structure: crates by layer, circles between a crate's modules, long files, superseded SQL,
words per document. Fails where modules use each other in a circle that ALLOWED does not explain, and where ALLOWED
explains a circle that is gone.

Usage: scripts/structure.py [--brief]      --brief prints only what is wrong
"""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONG_FILE = 450

# Folders whose modules are compared one by one: each wing has a state, which all tasks share, and tasks.
WINGS = {"engine": ("claiming", "delivering", "waking", "peers", "maintenance")}

# (crate, modules of the circle): why it stays.
ALLOWED = {
    (
        "model",
        ("letter", "producer", "scenario", "state", "step"),
    ): "the state holds the letters that letter.rs defines, and letter.rs has steps on the state",
    (
        "model",
        ("claim", "lane"),
    ): "a claim asks whether the worker has its session, and what a lane may do next includes a claim",
}


def packages():
    """The crates of the workspace with the crates of the workspace that they need."""
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "metadata", "--no-deps", "--format-version", "1", "--locked", "--offline"]
    metadata = json.loads(subprocess.check_output(command, cwd=ROOT))
    names = {package["name"] for package in metadata["packages"]}
    found = {}
    for package in metadata["packages"]:
        needs = {
            dependency["name"]
            for dependency in package["dependencies"]
            if dependency["name"] in names and dependency["kind"] is None
        }
        library = next(
            (target for target in package["targets"] if "lib" in target["kind"]), None
        )
        found[package["name"]] = (needs, Path(library["src_path"]) if library else None)
    return found


def layers(needs):
    """The layer of each crate: 0 needs none, each other one lies above all that it needs."""
    level = {}

    def of(name):
        if name not in level:
            level[name] = 1 + max((of(below) for below in needs[name]), default=-1)
        return level[name]

    for name in needs:
        of(name)
    return level


def code_of(path):
    """The text of a Rust file without comments, strings and test modules."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'r(#+)".*?"\1', '""', text, flags=re.S)
    text = re.sub(r"'(?:\\.|[^\\'\n])'", "' '", text)
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    # rustfmt closes an inline module at the column where it opens.
    return re.sub(
        r"^([ ]*)#\[cfg\(test\)\]\n\1(?:pub(?:\([^)]*\))? )?mod \w+ \{.*?^\1\}$", "", text, flags=re.S | re.M
    )


def test_files(crate):
    """The files of modules that only tests have, as the files above them declare them."""
    found = set()
    for path in crate.rglob("*.rs"):
        below = path.parent if path.name in ("lib.rs", "mod.rs") else path.with_suffix("")
        declared = re.findall(
            r"#\[cfg\(test\)\]\n\s*(?:pub(?:\([^)]*\))? )?mod (\w+);", path.read_text(encoding="utf-8")
        )
        for name in declared:
            found.add(below / f"{name}.rs")
            found.update((below / name).rglob("*.rs"))
    return found


def use_paths(tree):
    """Every path of a use tree, as lists of names."""
    tree = tree.strip()
    if "{" in tree:
        head, rest = tree.split("{", 1)
        inner = rest[: rest.rindex("}")]
        prefix = [name for name in head.strip().split("::") if name]
        parts, depth, part = [], 0, ""
        for char in inner:
            depth += (char == "{") - (char == "}")
            if char == "," and depth == 0:
                parts.append(part)
                part = ""
            else:
                part += char
        parts.append(part)
        return [prefix + path for part in parts if part.strip() for path in use_paths(part)]
    return [[name.strip() for name in tree.split(" as ")[0].split("::")]]


def paths_in(code):
    """Paths that begin with crate, super or self."""
    uses = r"\buse\s+((?:crate|super|self)\b[^;]*);"
    for tree in re.findall(uses, code):
        yield from use_paths(re.sub(r"\s+", " ", tree))
    for path in re.findall(
        r"\b((?:crate|super|self)(?:::\w+)+)", re.sub(uses, "", code)
    ):
        yield path.split("::")


class Scope:
    """The modules that a lib.rs or mod.rs declares, what it exports of them, and the rest of it."""

    def __init__(self, path, name):
        code = code_of(path)
        self.path, self.name = path, name
        self.modules = set(re.findall(r"^(?:pub(?:\([^)]*\))? )?mod (\w+);", code, flags=re.M))
        self.exported = {}
        self.uses = set()
        for visibility, tree in re.findall(
            r"^(pub(?:\([^)]*\))? )?use ([^;]*);", code, flags=re.M
        ):
            for names in use_paths(re.sub(r"\s+", " ", tree)):
                names = [part for part in names if part != "self"]
                names = names[1:] if names[0] == "crate" and not name else names
                if names[0] in self.modules:
                    self.exported[names[-1]] = names
                    if not visibility:
                        self.uses.add(names[0])
        self.body = re.sub(r"^(?:pub(?:\([^)]*\))? )?use [^;]*;", "", code, flags=re.M)
        for module in self.modules:
            if re.search(rf"\b{module}::", self.body):
                self.uses.add(module)


def module_uses(library, wings):
    """Which modules of a crate use which: those that its root declares, and instead of a wing those inside it.
    What the root, or a wing's mod.rs, defines itself counts as a module of its own."""
    crate = library.parent
    scopes = {"": Scope(library, "")}
    for wing in wings:
        scopes[wing] = Scope(crate / wing / "mod.rs", wing)

    def resolve(names, scope=""):
        """The module in which a path from the crate's root ends; None where it leaves the crate."""
        here = scopes[scope]
        if not names or names[0] == "*":
            return scope or "lib"
        first = names[0]
        if first in here.modules:
            if not scope and first in scopes:
                return resolve(names[1:], first)
            return f"{scope}::{first}" if scope else first
        if first in here.exported:
            return resolve(here.exported[first] + names[1:], scope)
        if re.search(rf"\b{first}\b", here.body):
            return scope or "lib"
        return None

    skipped = test_files(crate)
    uses = defaultdict(set)
    for name, scope in scopes.items():
        for module in scope.uses:
            uses[name or "lib"].add(resolve([module], name))
    for path in sorted(crate.rglob("*.rs")):
        own = list(path.relative_to(crate).with_suffix("").parts)
        if path == library or path in skipped or own[0] not in scopes[""].modules:
            continue
        if own[-1] == "mod":
            own.pop()
        module = resolve(own)
        for names in paths_in(code_of(path)):
            at = list(own)
            while names and names[0] in ("crate", "super", "self"):
                step = names.pop(0)
                if step == "crate":
                    at = []
                elif step == "super" and at:
                    at.pop()
            target = resolve(at + names)
            if target:
                uses[module].add(target)
        uses[module].discard(module)
    return uses


def circles(uses):
    """The groups of modules that reach each other."""
    order, low, stack, found, counter = {}, {}, [], [], [0]

    def visit(name):
        order[name] = low[name] = counter[0]
        counter[0] += 1
        stack.append(name)
        for other in sorted(uses.get(name, ())):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = []
            while not group or group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(tuple(sorted(group)))

    for name in sorted(uses):
        if name not in order:
            visit(name)
    return sorted(found)


def tracked(*patterns):
    listed = subprocess.check_output(["git", "ls-files", "-z", *patterns], cwd=ROOT, text=True)
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def superseded():
    """Lines of SQL that define a function which a later file, or a later line, defines again."""
    body = re.compile(r"\$(\w*)\$.*?\$\1\$;?", flags=re.S)
    last, lines = {}, defaultdict(int)
    for path in sorted(tracked("migrations/*.sql")):
        text = path.read_text(encoding="utf-8")
        for start in re.finditer(
            r"^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE|VIEW) ([\w.]+)", text, flags=re.M
        ):
            name = start.group(1)
            quoted = body.search(text, start.end())
            plain = text.find(";\n", start.end())
            if quoted and (plain < 0 or quoted.start() < plain):
                end = quoted.end()
            else:
                end = plain if plain >= 0 else len(text)
            count = text.count("\n", start.start(), end) + 1
            if name in last:
                where, before = last[name]
                lines[where] += before
            last[name] = (path.name, count)
    return dict(lines)


def main():
    brief = "--brief" in sys.argv[1:]

    def say(text=""):
        if not brief:
            print(text)

    found = packages()
    level = layers({name: needs for name, (needs, _) in found.items()})
    arrows = sum(len(needs) for needs, _ in found.values())
    say(f"crates: {len(found)}, {arrows} arrows, {max(level.values()) + 1} layers")
    for number in range(max(level.values()), -1, -1):
        for name in sorted(name for name in level if level[name] == number):
            needs = sorted(found[name][0], key=lambda below: (-level[below], below))
            short = [below.removeprefix("lanekeeper-") for below in needs]
            say(f"  {number}  {name.removeprefix('lanekeeper-'):13} {' '.join(short)}".rstrip())

    wrong, seen = [], set()
    say("\ncircles between a crate's modules:")
    for name, (_, library) in sorted(found.items()):
        if library is None:
            continue
        uses = module_uses(library, WINGS.get(name.removeprefix("lanekeeper-"), ()))
        for group in circles(uses):
            key = (name.removeprefix("lanekeeper-"), group)
            seen.add(key)
            reason = ALLOWED.get(key)
            text = f"{key[0]}: {', '.join(group)}"
            if reason:
                say(f"  {text}: {reason}")
                continue
            inner = [f"{a} uses {b}" for a in group for b in sorted(uses[a] & set(group))]
            wrong.append(f"{text} use each other in a circle ({'; '.join(inner)})")
    for crate, group in sorted(set(ALLOWED) - seen):
        wrong.append(f"{crate}: {', '.join(group)} are no circle any more: take them off the list")
    if not seen:
        say("  none")

    say(f"\nfiles of more than {LONG_FILE} lines:")
    long_files = [
        (path.read_text(encoding="utf-8").count("\n"), path)
        for path in tracked("*.rs", "*.sql", "*.lua", "*.py", "*.sh")
    ]
    long_files = sorted((entry for entry in long_files if entry[0] > LONG_FILE), reverse=True)
    for lines, path in long_files:
        say(f"  {lines:6} {path.relative_to(ROOT)}")
    if not long_files:
        say("  none")

    again = superseded()
    say(f"\nsuperseded lines of SQL: {sum(again.values())}")
    for name, lines in sorted(again.items()):
        say(f"  {lines:6} {name}")

    say("\nwords per document:")
    total = 0
    for path in tracked("*.md"):
        words = len(path.read_text(encoding="utf-8").split())
        total += words
        say(f"  {words:6} {path.relative_to(ROOT)}")
    say(f"  {total:6} in all")

    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
