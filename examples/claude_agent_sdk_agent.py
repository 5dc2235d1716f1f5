"""An agent of the Claude Agent SDK whose conversation is compacted by an engine in this very process.

    python examples/claude_agent_sdk_agent.py "Read the sources." /compact "What is missing in them?"

Each argument is a prompt; `/compact` compacts. Needs `pip install claude-agent-sdk 'jev-engine[serve]'`.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, SystemMessage

from jev_engine.serve import process
from jev_engine_adapters.claude_code.install import MOD

TOOLS = ["Read", "Bash"]


async def main(prompts: list[str]) -> None:
    """Send the prompts, one after another, and print what comes back."""
    # The plugin asks for the local process of this user; where it finds this one, it starts none.
    threading.Thread(target=process.serve, kwargs={"port": 0}, daemon=True).start()
    command = shutil.which("jev-engine") or "jev-engine"
    options = ClaudeAgentOptions(
        plugins=[{"type": "local", "path": str(MOD)}],
        settings=json.dumps({"pluginConfigs": {"jev-engine": {"options": {"command": command}}}}),
        allowed_tools=TOOLS,
    )
    async with ClaudeSDKClient(options) as client:
        for prompt in prompts:
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, SystemMessage) and message.subtype == "compact_boundary":
                    print("compacted:", message.data["compact_metadata"]["trigger"])
                elif isinstance(message, ResultMessage):
                    print("answer:", message.result)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
