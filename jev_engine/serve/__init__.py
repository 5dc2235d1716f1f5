"""One local process for the hosts of this machine: plugins, hooks and the gateway, over one socket and one port.

`process` starts it on demand, one per user; `app` guards and routes; `desk` answers plugins and hooks; `pool` keeps
the sessions; `client` speaks to it. Everything but the HTTP itself works without the extra `serve`.
"""
