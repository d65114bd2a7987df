"""CloudEvents with the SDK of PyPI. `read`: prints what it reads of HTTP messages, given as a JSON array of objects with
`headers` and `body` (base64). `write`: prints such messages, of which the last repeats the first."""

import base64
import json
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent


def plain(value):
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode()}
    return value if isinstance(value, (str, int, float, bool, dict, list, type(None))) else value.isoformat()


def read(message):
    event = from_http_event(HTTPMessage(headers=message["headers"], body=base64.b64decode(message["body"])))
    attributes = {name: plain(value) for name, value in event.get_attributes().items()}
    return {"attributes": attributes, "data": plain(event.get_data())}


def written(message):
    return {"headers": dict(message.headers), "body": base64.b64encode(message.body).decode()}


if sys.argv[1] == "read":
    print(json.dumps([read(message) for message in json.load(sys.stdin)]))
else:

    def event(id, media, data, **more):
        attributes = {"id": id, "source": "https://sdk.example/a", "type": "sdk.sent", "datacontenttype": media}
        return CloudEvent({**attributes, "specversion": "1.0", **more}, data)

    one = event("1", "application/json", {"n": 1, "s": "ü"}, subject='Euro € "😀" 100%', partitionkey="p", sequence="001")
    text = event("2", "text/plain", "plain ü")
    raw = event("3", "application/octet-stream", b"\xff\x00\x01")
    messages = [to_structured_event(one), to_binary_event(text), to_structured_event(raw), to_binary_event(raw)]
    print(json.dumps([written(message) for message in messages + [to_binary_event(one)]]))
