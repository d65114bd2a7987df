#!/usr/bin/env python3
"""A FAKE of Telegram's Bot API, for the example beside it: no message leaves this machine, and no person reads one.

It knows getMe, getUpdates, sendMessage, editMessageText and sendChatAction, of one bot and one chat. Each change of the
chat is printed.

  telegram.py serve FILE      serves, and writes its URL into the file
  telegram.py write URL TEXT  a person writes
  telegram.py chat URL        the bot's messages, each with its versions
"""

import json
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHAT = 77
changed = threading.Condition()
updates, shown, last_message, last_update = [], {}, [0], [0]


def say(who, text):
    print(f"  [fake Telegram] {who}: {text}", flush=True)


def get_updates(body):
    until = time.monotonic() + body.get("timeout", 0)
    with changed:
        if "offset" in body:
            updates[:] = [update for update in updates if update["update_id"] >= body["offset"]]
        while not updates and time.monotonic() < until:
            changed.wait(until - time.monotonic())
        return updates[: body.get("limit", 100)]


def send_message(body):
    with changed:
        last_message[0] += 1
        message = {"message_id": last_message[0], "chat": {"id": CHAT}, "text": body["text"]}
        shown[last_message[0]] = [body["text"]]
        changed.notify_all()
    say("bot", body["text"])
    return message


def edit_message(body):
    with changed:
        versions = shown[int(body["message_id"])]
        versions.append(body["text"])
        changed.notify_all()
    say("bot, edited", body["text"])
    return {"message_id": int(body["message_id"]), "chat": {"id": CHAT}, "text": body["text"]}


def person(body):
    with changed:
        last_message[0] += 1
        last_update[0] += 1
        updates.append({"update_id": last_update[0], "message": {
            "message_id": last_message[0], "date": int(time.time()), "text": body["text"],
            "chat": {"id": CHAT, "type": "private"}, "from": {"id": CHAT, "first_name": "Ada"}}})
        changed.notify_all()
    say("Ada", body["text"])
    return True


METHODS = {
    "getMe": lambda body: {"id": 1, "is_bot": True, "username": "fake_bot"},
    "getUpdates": get_updates,
    "sendMessage": send_message,
    "editMessageText": edit_message,
    "sendChatAction": lambda body: say("bot", "… types") or True,
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or "null")
        name = self.path.rsplit("/", 1)[-1]
        call = person if self.path == "/person" else METHODS.get(name)
        if call is None:
            self.answer(404, {"ok": False, "error_code": 404, "description": "Not Found: this is a fake"})
        else:
            self.answer(200, {"ok": True, "result": call(body or {})})

    def do_GET(self):
        with changed:
            self.answer(200, [versions for _, versions in sorted(shown.items())])

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(file):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with open(file, "w") as file:
        file.write(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()


def write(url, text):
    body = json.dumps({"text": text}).encode()
    urllib.request.urlopen(urllib.request.Request(url + "/person", body)).close()


def chat(url):
    with urllib.request.urlopen(url + "/chat") as answer:
        for versions in json.load(answer):
            print(" -> ".join(versions))


if __name__ == "__main__":
    {"serve": serve, "write": write, "chat": chat}[sys.argv[1]](*sys.argv[2:])
