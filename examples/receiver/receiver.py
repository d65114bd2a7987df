"""A receiver of Lanekeeper's webhooks with Python's standard library: signature, dedupe, acknowledgement, batches.

RECEIVER_SECRET=whsec_... python3 receiver.py [port] [database]
"""
import base64, hashlib, hmac, json, os, sqlite3, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

TOLERANCE_S, MOST_BYTES = 300, 16 * 1024 * 1024
KEYS = [base64.b64decode(s.removeprefix("whsec_")) for s in os.environ["RECEIVER_SECRET"].split()]
PORT, STORE = int((sys.argv + ["3000"])[1]), (sys.argv + ["", "receiver.db"])[2]
database = sqlite3.connect(STORE, isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
database.execute("CREATE TABLE IF NOT EXISTS seen (session TEXT, id TEXT, at REAL, PRIMARY KEY (session, id))")
database.execute("CREATE TABLE IF NOT EXISTS handled (number INTEGER PRIMARY KEY, session TEXT, seq INTEGER, data TEXT)")


def handle(event):
    """Your work. What it writes to the database commits with the memory of the event, or not at all."""
    row = event["session"], event["seq"], json.dumps(event["data"])
    database.execute("INSERT INTO handled (session, seq, data) VALUES (?, ?, ?)", row)


def verified(headers, body):
    """Whether one of the signatures is ours and the request is not too old. Compares in constant time."""
    message, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return False
    signed = f"{message}.{timestamp}.".encode() + body
    ours = [b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in KEYS]
    given = [s.encode() for s in headers.get("webhook-signature", "").split()]
    return any([hmac.compare_digest(a, b) for a in ours for b in given])


def once(event):
    """Handles an event in one transaction with the memory that it was handled. A repeat does nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        name = f'{event["id"]} {event.get("replay_id", "")}'  # What is replayed is handled anew, once for each replay.
        row = event["session"], name, time.time()
        if database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", row).rowcount:
            handle(event)
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise


class Receiver(BaseHTTPRequestHandler):
    timeout = 30

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return self.answer(413, {})
        body = self.rfile.read(int(length))
        if len(body) < int(length) or not verified(self.headers, body):
            return self.answer(401, {})
        content = json.loads(body)
        events, done = content.get("batch", [content]), []
        for event in events:
            try:
                once(event)
            except Exception as error:  # What came before it is accepted; from here on it is sent again.
                self.log_error("not handled: %r", error)
                break
            done.append(event["id"])
        ack = done if "batch" in content else len(done) == 1
        self.answer(200 if len(done) == len(events) else 503, {"accepted": len(done), "ack": ack})

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", PORT), Receiver)
    print("listening on", server.server_port, flush=True)
    server.serve_forever()
