"""An agent made with the a2a-sdk: `a2a_agent.py PORT JOURNAL [PAUSE]`. It speaks JSON-RPC at /rpc and HTTP+JSON at /rest.

What a message says decides what becomes of it. A message is answered once: the journal has the ids of those that were, one
JSON object a line, and outlives the process. Tasks do not.
"""

import asyncio
import json
import os
import sys

import httpx
import uvicorn
from a2a.helpers.proto_helpers import get_message_text, new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Role, Task, TaskState, TaskStatus
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette

PORT, JOURNAL = int(sys.argv[1]), sys.argv[2]
PAUSE = float(sys.argv[3]) if len(sys.argv) > 3 else 0.05
ANSWERED = set()
if os.path.exists(JOURNAL):
    with open(JOURNAL, encoding="utf-8") as journal:
        ANSWERED = {line["id"] for line in map(json.loads, journal) if line["did"] == "answered"}


def note(did, **what):
    with open(JOURNAL, "a", encoding="utf-8") as journal:
        journal.write(json.dumps({"did": did, **what}) + "\n")
        journal.flush()
        os.fsync(journal.fileno())


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        message = context.message
        said = get_message_text(message)
        of = {"id": message.message_id, "context": context.context_id, "said": said}
        if not said:
            of["data"] = MessageToDict(message.parts[0])["data"]
        note("received", task=context.task_id, metadata=MessageToDict(message.metadata), **of)
        if said == "message":
            self.answer(of)
            await event_queue.enqueue_event(new_text_message("done", role=Role.ROLE_AGENT))
            return
        status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        task = Task(id=context.task_id, context_id=context.context_id, status=status, history=[message])
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if said == "reject":
            await updater.reject(new_text_message("not my work", role=Role.ROLE_AGENT))
            return
        await updater.start_work()
        if said == "hang":
            await asyncio.Event().wait()
        if said == "ask":
            await updater.requires_input(new_text_message("which one?", role=Role.ROLE_AGENT))
            return
        await asyncio.sleep(PAUSE)
        if said == "fail":
            await updater.failed(new_text_message("out of paper", role=Role.ROLE_AGENT))
            return
        self.answer(of)
        await updater.complete()

    def answer(self, of):
        if of["id"] not in ANSWERED:
            ANSWERED.add(of["id"])
            note("answered", **of)

    async def cancel(self, context, event_queue):
        note("cancelled", task=context.task_id, context=context.context_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


base = f"http://127.0.0.1:{PORT}"
card = AgentCard(
    name="test",
    description="An agent for tests",
    version="1",
    supported_interfaces=[
        AgentInterface(url=f"{base}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=f"{base}/rest", protocol_binding="HTTP+JSON", protocol_version="1.0"),
    ],
    capabilities=AgentCapabilities(push_notifications=True),
    default_input_modes=["text/plain", "application/json"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="test", name="test", description="Answers", tags=["test"])],
)
configs = InMemoryPushNotificationConfigStore()
handler = DefaultRequestHandler(
    agent_executor=Executor(),
    task_store=InMemoryTaskStore(),
    agent_card=card,
    push_config_store=configs,
    push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
)
routes = create_agent_card_routes(card) + create_jsonrpc_routes(handler, "/rpc")
routes += create_rest_routes(handler, path_prefix="/rest")
app = Starlette(routes=routes)
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning", timeout_graceful_shutdown=1)
