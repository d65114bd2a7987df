"""Requests as platforms sign them: Slack's by its own SDK, Discord's by PyNaCl, which Discord's documentation names. Reads
`timestamp`, `slack` (`secret`, `body`) and `discord` (`seed`, `body`) as JSON, and prints the signatures, and the public key
of the seed."""

import json
import sys

from nacl.signing import SigningKey
from slack_sdk.signature import SignatureVerifier

asked = json.load(sys.stdin)
timestamp = asked["timestamp"]
slack = SignatureVerifier(asked["slack"]["secret"])
signature = slack.generate_signature(timestamp=timestamp, body=asked["slack"]["body"])
assert slack.is_valid(body=asked["slack"]["body"], timestamp=timestamp, signature=signature)
key = SigningKey(bytes.fromhex(asked["discord"]["seed"]))
signed = key.sign(f"{timestamp}{asked['discord']['body']}".encode())
print(json.dumps({
    "slack": signature,
    "discord": signed.signature.hex(),
    "discord_key": key.verify_key.encode().hex(),
}))
