"""A client made with the a2a-sdk: `a2a_client.py URL TOKEN < steps.json`. URL is what the agent's card is below.

Prints what came of each step, as a JSON array: a task, what a stream told, or the class of an error.
"""

import asyncio
import json
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import new_text_message
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, Role, SendMessageRequest, SubscribeToTaskRequest
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict

URL, TOKEN = sys.argv[1], sys.argv[2]


def message(step):
    message = new_text_message(step["text"], role=Role.ROLE_USER)
    message.message_id = step["id"]
    message.context_id = step.get("context", "")
    return SendMessageRequest(message=message)


async def carry_out(step, clients):
    polling, streaming = clients
    match step["do"]:
        case "send":
            request = message(step)
            request.configuration.return_immediately = step.get("immediately", False)
            return [MessageToDict(event) async for event in polling.send_message(request)][0]["task"]
        case "stream":
            return [MessageToDict(event) async for event in streaming.send_message(message(step))]
        case "subscribe":
            request = SubscribeToTaskRequest(id=step["id"])
            return [MessageToDict(event) async for event in streaming.subscribe(request)]
        case "get":
            return MessageToDict(await polling.get_task(GetTaskRequest(id=step["id"])))
        case "cancel":
            return MessageToDict(await polling.cancel_task(CancelTaskRequest(id=step["id"])))


async def main():
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(headers=headers) as http:
        card = await A2ACardResolver(http, URL).get_agent_card()
        clients = [
            ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card)
            for streaming in (False, True)
        ]
        results = []
        for step in json.load(sys.stdin):
            try:
                results.append(await carry_out(step, clients))
            except A2AError as error:
                results.append({"error": type(error).__name__})
        print(json.dumps(results))


asyncio.run(main())
