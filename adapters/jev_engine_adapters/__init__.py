"""Host formats, one folder each; nothing is imported until a name is asked for."""
