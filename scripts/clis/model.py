"""A scripted model server: it FAKES three model APIs, so that real agent CLIs can be driven without any model.

It speaks just enough of the Anthropic Messages API, the OpenAI Responses API and the Gemini generateContent API,
streaming included, for one agent at a time. No model is asked, and no answer means anything. The last prompt that
begins with "scripted:" decides what happens:

    scripted: hello   an answer of a few words
    scripted: tool    the shell tool is called once; when its result is there, an answer of a few words
    scripted: fail    the API's error for a bad request, which no CLI tries again
    scripted: wait    no answer for two minutes: long enough to interrupt the CLI
"""

import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = "done as scripted"
COMMAND = "echo scripted"
# What each CLI calls its shell, and what it wants to be given.
SHELLS = {
    "Bash": {"command": COMMAND, "description": "say a word"},
    "bash": {"command": COMMAND, "description": "say a word"},
    "run_shell_command": {"command": COMMAND, "description": "say a word"},
    "exec_command": {"cmd": COMMAND},
    "shell_command": {"command": COMMAND},
    "shell": {"command": ["echo", "scripted"]},
}
# Side questions of Gemini CLI, such as which model suits, are answered with a JSON document that has all it looks for.
SIDE_ANSWER = {
    "reasoning": "scripted",
    "next_speaker": "user",
    "model_choice": "flash",
    "complexity_reasoning": "scripted",
    "complexity_score": 1,
}


class Request:
    """What matters of a request, whatever API it came by."""

    def __init__(self, body):
        text = json.dumps(body)
        found = re.findall(r"scripted: (\w+)", text)
        self.script = found[-1] if found else "hello"
        names = re.findall(r'"name": "(\w+)"', json.dumps(body.get("tools", [])))
        self.shell = next((name for name in names if name in SHELLS), None)
        self.is_answered = any(
            mark in text for mark in ('"tool_result"', '"function_call_output"', '"functionResponse"', '"custom_tool_call_output"')
        )

    @property
    def calls_tool(self):
        return self.script == "tool" and self.shell is not None and not self.is_answered


def anthropic(request):
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": "scripted", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }
    if request.calls_tool:
        block = {"type": "tool_use", "id": "toolu_scripted", "name": request.shell, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(SHELLS[request.shell])}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": ANSWER}
    reason = "tool_use" if request.calls_tool else "end_turn"
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


def responses(request):
    if request.calls_tool:
        item = {
            "type": "function_call", "id": "fc_scripted", "call_id": "call_scripted", "name": request.shell,
            "arguments": json.dumps(SHELLS[request.shell]),
        }
    else:
        content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
        item = {"type": "message", "id": "msg_scripted", "role": "assistant", "content": content}
    usage = {
        "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2,
    }
    return [
        {"type": "response.created", "response": {"id": "resp_scripted"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_scripted", "output": [item], "usage": usage}},
    ]


def gemini(request, is_stream):
    if request.calls_tool:
        part = {"functionCall": {"name": request.shell, "args": SHELLS[request.shell]}}
    else:
        part = {"text": ANSWER if is_stream else json.dumps(SIDE_ANSWER)}
    return {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "scripted",
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, form, *values):
        print(f"model: {form % values}", file=sys.stderr)

    def reply(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, events, named):
        lines = []
        for event in events:
            name = f"event: {event['type']}\n" if named else ""
            lines.append(f"{name}data: {json.dumps(event)}\n\n")
        body = "".join(lines).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        self.reply(200, {"data": [], "models": []})

    def do_POST(self):
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        try:
            body = json.loads(text or b"{}")
        except ValueError:
            return self.reply(400, {"error": {"message": "not JSON"}})
        request = Request(body)
        if path.endswith("/count_tokens"):
            return self.reply(200, {"input_tokens": 1})
        if path.endswith(":countTokens"):
            return self.reply(200, {"totalTokens": 1})
        kind = next((kind for kind in ("/messages", "/responses", "enerateContent") if path.endswith(kind)), None)
        if kind is None:
            return self.reply(404, {"error": {"message": "not scripted"}})
        if request.script == "wait":
            time.sleep(120)
        if request.script == "fail":
            error = {"type": "invalid_request_error", "code": 400, "status": "INVALID_ARGUMENT", "message": "failed as scripted"}
            return self.reply(400, {"type": "error", "error": error})
        if kind == "/messages":
            events = anthropic(request)
            if body.get("stream"):
                return self.stream(events, named=True)
            message = events[0]["message"] | {"content": [{"type": "text", "text": ANSWER}], "stop_reason": "end_turn"}
            return self.reply(200, message)
        if kind == "/responses":
            return self.stream(responses(request), named=True)
        is_stream = "stream" in path
        answer = gemini(request, is_stream)
        return self.stream([answer], named=False) if is_stream else self.reply(200, answer)


def start():
    """Serves on a free port of the loopback; returns its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
