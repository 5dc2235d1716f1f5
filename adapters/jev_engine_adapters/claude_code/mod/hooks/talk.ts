// Speaking to jev-engine, a program of this machine: over its socket, or one process for one call.
import type { EngineInterface, PluginOptions } from 'claude-code'

type $ = EngineInterface

export const PLUGIN = 'jev-engine'
export const EXPAND = `mcp__${PLUGIN}__expand`
export const SEARCH = `mcp__${PLUGIN}__search`
// $.http.fetch takes 4,194,304 characters; more goes through standard input.
const LARGEST_REQUEST = 4_000_000
const START_MS = 20_000

export type Link = { options: PluginOptions; command: string; timeoutMs: number; socketPath: string }

export const text = (options: PluginOptions, name: string, otherwise = ''): string => {
  const value = options[name]
  return typeof value === 'string' && value !== '' ? value : otherwise
}

export const number = (options: PluginOptions, name: string, otherwise: number): number => {
  const value = options[name]
  return typeof value === 'number' && Number.isFinite(value) ? value : otherwise
}

export const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

const lastLine = (said: string): string => said.trim().split('\n').pop() ?? ''

export const linkOf = (options: PluginOptions): Link => ({
  options,
  command: text(options, 'command', 'jev-engine'),
  timeoutMs: 1_000 * Math.min(600, Math.max(1, number(options, 'timeoutSeconds', 60))),
  socketPath: '',
})

// The key: of this plugin's options, then the environment, then the user's own settings; never a project's.
async function keyOf($: $, link: Link): Promise<string> {
  const judge = text(link.options, 'judge')
  const given = text(link.options, 'apiKey')
  if (given || judge === '' || judge === 'local') return given
  const endpoint = judge.includes('://') ? judge : text(link.options, 'endpoint', 'typesafe')
  const user = (await $.settings.read({ source: 'user' })) as { env?: Record<string, string> }
  const env = user.env ?? {}
  if (endpoint === 'typesafe') return (await $.env.get('TYPESAFE_API_KEY')) ?? env['TYPESAFE_API_KEY'] ?? ''
  if (endpoint === 'openrouter') return (await $.env.get('OPENROUTER_API_KEY')) ?? env['OPENROUTER_API_KEY'] ?? ''
  if (endpoint === 'openai-decisions') return (await $.env.get('OPENAI_API_KEY')) ?? env['OPENAI_API_KEY'] ?? ''
  return (await $.env.get('JEV_ENGINE_API_KEY')) ?? env['JEV_ENGINE_API_KEY'] ?? ''
}

export async function request($: $, link: Link, agentId: string | undefined, rest: object): Promise<object> {
  return {
    v: 1,
    host: 'claude-code-plugin',
    session_id: await $.session.id(),
    cwd: await $.session.cwd(),
    config_dir: await $.env.get('CLAUDE_CONFIG_DIR'),
    agent_id: agentId,
    expand_tool: EXPAND,
    options: {
      judge: text(link.options, 'judge'),
      endpoint: text(link.options, 'endpoint'),
      key: await keyOf($, link),
      miss_cost: number(link.options, 'missCost', 0) || undefined,
    },
    ...rest,
  }
}

// The id in a marker among the results of the conversation: the newest, or the one that is asked for.
export async function markerIn($: $, agentId: string | undefined, wanted = ''): Promise<string | undefined> {
  const rows = await $.session.messages(agentId ? { agentId } : undefined)
  if (!Array.isArray(rows)) return undefined
  for (let i = rows.length - 1; i >= 0; i--) {
    for (const result of rows[i]?.toolResults ?? []) {
      const id = /\[jev-engine: [^\]]*intact as (jx-[0-9a-f]{16})/.exec(result.text)?.[1]
      if (id && (!wanted || id === wanted)) return id
    }
  }
  return undefined
}

async function overSocket($: $, link: Link, route: string, body: string): Promise<unknown> {
  if (!link.socketPath) {
    const timeoutMs = Math.min(link.timeoutMs, START_MS)
    const started = await $.process.run([link.command, 'serve', '--ensure'], { timeoutMs })
    if (started.exitCode !== 0) throw new Error(lastLine(started.stderr) || 'jev-engine serve failed')
    link.socketPath = String(JSON.parse(started.stdout).socket)
  }
  const answer = await $.http.fetch(`http://jev-engine/plugin/${route}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
    socketPath: link.socketPath,
  })
  if (!answer.ok) throw new Error(`jev-engine answered ${answer.status}`)
  return JSON.parse(answer.text)
}

async function overStdin($: $, link: Link, route: string, body: string): Promise<unknown> {
  const argv = [link.command, 'serve', '--once', route]
  const ran = await $.process.run(argv, { stdin: body, timeoutMs: link.timeoutMs })
  if (ran.exitCode !== 0) throw new Error(lastLine(ran.stderr) || `jev-engine ended with ${ran.exitCode}`)
  return JSON.parse(ran.stdout)
}

async function talk($: $, link: Link, route: string, body: string): Promise<unknown> {
  if (body.length < LARGEST_REQUEST) {
    // The second try is for a process that went away since it was last asked.
    for (let left = link.socketPath ? 2 : 1; left > 0; left--) {
      try {
        return await overSocket($, link, route, body)
      } catch (error) {
        link.socketPath = ''
        $.ui.log(`${route} over the socket failed: ${reasonOf(error)}`, { to: 'debug' })
      }
    }
  }
  return overStdin($, link, route, body)
}

// Rejects after the user's patience; waiting is free of charge for a hook.
export function ask($: $, link: Link, route: string, given: object): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const seconds = link.timeoutMs / 1_000
    const timer = $.clock.after(link.timeoutMs, () => reject(new Error(`no answer within ${seconds} s`)))
    talk($, link, route, JSON.stringify(given)).then(resolve, reject).finally(() => timer.cancel())
  })
}
