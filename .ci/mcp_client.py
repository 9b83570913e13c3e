"""A client on the official Python SDK, for our server: calls what it offers by either handshake."""

import asyncio
import sys

from mcp import StdioServerParameters
from mcp.client import Client

KINDS = {
    "test_simple_text": ["text"],
    "test_image_content": ["image"],
    "test_audio_content": ["audio"],
    "test_embedded_resource": ["resource"],
    "test_multiple_content_types": ["text", "image", "resource"],
}


async def over_http(url: str, mode: str) -> None:
    async with Client(url, mode=mode) as client:
        offered = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "$defs" in offered["json_schema_2020_12_tool"].input_schema, offered
        for tool, kinds in KINDS.items():
            result = await client.call_tool(tool, {})
            assert not result.is_error and [piece.type for piece in result.content] == kinds, result
        failed = await client.call_tool("test_error_handling", {})
        assert failed.is_error and failed.content[0].text == "This tool always fails.", failed
        reports = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reports.append((progress, message))

        await client.call_tool("test_tool_with_progress", {}, progress_callback=report)
        assert reports == [(n + 1, f"{part} of it is done") for n, part in enumerate(["none", "half", "all"])], reports
        unknown = await client.call_tool("nothing", {})
        assert unknown.is_error and "there is no tool `nothing`" in unknown.content[0].text, unknown
        both = await asyncio.gather(*(client.call_tool("test_simple_text", {}) for _ in range(20)))
        assert all(result.content[0].text == "This is a simple text." for result in both), both


async def over_stdio(program: list[str], mode: str) -> None:
    server = StdioServerParameters(command=program[0], args=program[1:])
    async with Client(server, mode=mode) as client:
        offered = [tool.name for tool in (await client.list_tools()).tools]
        assert offered, offered
        result = await client.call_tool("view", {"path": "Cargo.toml"})
        assert not result.is_error and "[workspace]" in result.content[0].text, result
        refused = await client.call_tool("view", {"path": "../"})
        assert refused.is_error, refused


async def main() -> None:
    for mode in "auto", "legacy":
        async with asyncio.timeout(60):
            if sys.argv[1].startswith("http"):
                await over_http(sys.argv[1], mode)
            else:
                await over_stdio(sys.argv[1:], mode)


asyncio.run(main())
