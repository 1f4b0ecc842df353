"""Drive one stdio MCP server with the official Python SDK and print what it saw.

usage: client.py session|client COMMAND [ARGUMENT...] < plan.json

"session" is the SDK's ClientSession (initialize handshake), "client" its Client
(server/discover). The plan is {"calls": [{"label", "tool", "arguments"}...],
"push": {"uri", "change"}}; the answer is one JSON object on stdout. After the
calls it subscribes to the resource, runs the command "change", waits until it is
told of an update and reads the resource. The server gets this process's environment.
The SDK checks structuredContent against the outputSchema that the server listed
and raises where they differ: such a call is reported under "raised".
"""

import json
import os
import sys
import warnings

import anyio
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

# A call that hangs must end here, with the name of the call, not in the test's own deadline.
CALL_SECONDS = 30


async def attempt(call):
    """The outcome of one call as JSON-able data, whatever it is."""
    try:
        with anyio.fail_after(CALL_SECONDS):
            return {"result": (await call()).model_dump(mode="json", by_alias=True, exclude_none=False)}
    except MCPError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}
    except Exception as error:  # a failed validation is an observation too
        return {"raised": f"{type(error).__name__}: {error}"}


async def observe(client, plan):
    seen = {"tools": await attempt(client.list_tools), "calls": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ping is deprecated by 2026-07-28, hosts still send it
        seen["ping"] = await attempt(client.send_ping)
    for step in plan["calls"]:
        seen["calls"][step["label"]] = await attempt(
            lambda step=step: client.call_tool(step["tool"], step["arguments"])
        )
    return seen


async def change(push):
    await anyio.run_process(push["change"])


async def push_to_session(session, updates, push):
    """The classic way: subscribe, and a notification to the message handler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        await session.subscribe_resource(push["uri"])
        await change(push)
        with anyio.fail_after(CALL_SECONDS):
            updated = await updates.receive()
        seen = {"updated": updated, "read": await attempt(lambda: session.read_resource(push["uri"]))}
        await session.unsubscribe_resource(push["uri"])
    return seen


async def push_to_client(client, push):
    """subscriptions/listen, a stream of events."""
    async with client.listen(resource_subscriptions=[push["uri"]]) as events:
        await change(push)
        with anyio.fail_after(CALL_SECONDS):
            event = await anext(events)
        return {"updated": str(event.uri), "read": await attempt(lambda: client.read_resource(push["uri"]))}


async def main():
    mode, command, *arguments = sys.argv[1:]
    plan = json.load(sys.stdin)
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    if mode == "session":
        told, updates = anyio.create_memory_object_stream(100)

        async def handle(message):
            if getattr(message, "method", None) == "notifications/resources/updated":
                await told.send(str(message.params.uri))

        async with stdio_client(server) as (read, write), ClientSession(read, write, message_handler=handle) as session:
            hello = await session.initialize()
            seen = await observe(session, plan)
            seen["push"] = await push_to_session(session, updates, plan["push"])
            seen |= {"protocol": hello.protocol_version, "server": hello.server_info.name}
    elif mode == "client":
        async with Client(server) as client:
            seen = await observe(client, plan)
            seen["push"] = await push_to_client(client, plan["push"])
            info = client.server_info
            seen |= {"protocol": client.protocol_version, "server": info.name if info else None}
    else:
        raise SystemExit(f"unknown mode {mode!r}")
    json.dump(seen, sys.stdout, ensure_ascii=False)


anyio.run(main)
