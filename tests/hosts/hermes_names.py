"""Names of the scenarios, for collecting tests where no host is installed; the worker checks that they are all."""

SCENARIOS = (
    "in_place", "rotating", "preflight", "overflow", "overflow_of_the_newest", "subagent", "running_loop", "forced",
    "nothing_to_do", "resumed", "handed_over", "overflow_of_words", "uncounted", "audited", "chat_command",
    "feasibility", "reserve", "temporary_agent", "two_users", "gateway_commands",
)  # fmt: skip
FAULTS = (
    "judge_down", "judge_slow", "judge_talks_nonsense", "store_nowhere", "store_read_only", "store_full",
    "store_locked", "settings_broken", "member_faults", "no_summariser", "unsafe_to_summarise", "originals_survive",
)  # fmt: skip
