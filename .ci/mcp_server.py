"""A server on the official Python SDK, for our client: over stdio, or over HTTP at the port that is named."""

import sys
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

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


class Choice(BaseModel):
    """What the user is asked."""

    colour: str = Field(default="green", description="The colour to paint it in.")


async def choice() -> Elicit[Choice]:
    """Asks by a request of its own in older versions of the protocol, and by the result of the call in newer ones."""
    return Elicit("Which colour?", Choice)


@server.tool(annotations=READS)
async def paint(chosen: Annotated[Choice, Resolve(choice)]) -> str:
    """Asks the user for a colour."""
    return f"painted {chosen.colour}"


class Weather(BaseModel):
    """A structured result."""

    city: str
    degrees: float


@server.tool(annotations=READS)
def weather(city: str) -> Weather:
    """Tells the weather."""
    return Weather(city=city, degrees=21.5)


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
