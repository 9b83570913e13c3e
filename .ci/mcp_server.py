"""A server on the official Python SDK, for our client: over stdio, or over HTTP at the port that is named."""

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

server = MCPServer("python", instructions="Use add.")
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


@server.tool(annotations=READS)
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(annotations=READS)
async def steps(ctx: Context) -> str:
    """Reports progress."""
    await ctx.report_progress(1, 2, "half")
    return "done"


@server.tool(annotations=READS)
def fail() -> str:
    """Fails."""
    raise ValueError("the disk is full")


@server.tool(annotations=READS)
async def texts(count: int) -> list[str]:
    """Gives several texts."""
    return [f"text {number}" for number in range(count)]


@server.resource("x://text")
def text() -> str:
    """A text."""
    return "the text"


@server.prompt()
def greet(who: str) -> str:
    """Greets somebody."""
    return f"Greet {who}."


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
