"""The server for agents, driven by the official client over its real stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def answers(*calls: tuple[str, dict[str, Any]]) -> tuple[dict[str, bool], list[str]]:
    """Start the server, list its tools, call some; what they said."""
    # Here, as it takes a second that no other worker has to spend.
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk() -> tuple[dict[str, bool], list[str]]:
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "unhang", "mcp"], cwd=str(ROOT)
        )
        async with Client(stdio_client(command)) as client:
            listed = await client.list_tools()
            reading = {
                tool.name: bool(tool.annotations and tool.annotations.read_only_hint)
                for tool in listed.tools
            }
            texts = []
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                texts.append(str(result.content[0].text))  # type: ignore[union-attr]
            return reading, texts

    return asyncio.run(talk())


def test_an_agent_gets_verdict_calls_tables_and_pages() -> None:
    """Every tool answers, and each says that it only reads."""
    tools, (brief, calls, rows, page, refused) = answers(
        ("diagnose", {"path": "examples/never-joined"}),
        ("entries", {"path": "examples/never-joined", "ranks": "2", "last": 3}),
        ("query", {"path": "examples/never-joined", "sql": "SELECT count(*) AS n FROM calls"}),
        ("explain", {"code": "UH101"}),
        ("diagnose", {"path": "no-such-place"}),
    )
    assert set(tools) == {"diagnose", "paste", "entries", "stacks", "query", "explain"}
    assert all(tools.values())
    assert json.loads(brief)["culprits"] == "2"
    assert "all_reduce" in calls
    assert json.loads(rows) == [{"n": 19}]
    assert "never-joined" in page
    assert json.loads(refused)["exit_code"] == 3


def test_an_agent_pastes_a_text() -> None:
    """No file is needed: the text itself is the argument."""
    stack = 'Thread 7 (idle): "MainThread"\n    load_batch (train.py:12)\n    main (train.py:40)\n'
    _, (told,) = answers(("paste", {"text": stack}))
    assert "load_batch (train.py:12)" in told


def test_sql_of_an_agent_cannot_write_or_read_files() -> None:
    """What the tables' lock refuses is an answer, not a crash."""
    _, refused = answers(
        ("query", {"path": "examples/never-joined", "sql": "COPY calls TO '/tmp/x.csv'"}),
        ("query", {"path": "examples/never-joined", "sql": "FROM read_csv('/etc/passwd')"}),
        ("query", {"path": "--help", "sql": ""}),
    )
    assert all("error" in json.loads(text) for text in refused)


@pytest.mark.parametrize("path", ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_a_tool_does_not_read_the_protocol(path: str) -> None:
    """Standard input by any of its names holds no stacks; the next call is answered."""
    _, (stacks, page) = answers(("stacks", {"path": path}), ("explain", {"code": "UH101"}))
    assert "stacks" in json.loads(stacks)["error"]
    assert "UH101" in page
