// Hands a compaction to jev-engine, a program of this machine, and builds what it answers. Whatever goes wrong, the
// built-in summary does its work as if this plugin were not there; a compaction that this plugin began is left out.
import type { EngineInterface, Register } from 'claude-code'
import { type Answer, build, slim } from './build'
import { type Link, lastLine, linkOf, number, reasonOf, text } from './link'

type $ = EngineInterface

const EXPAND = 'mcp__jev-engine__expand'
const SEARCH = 'mcp__jev-engine__search'
// $.http.fetch takes 4,194,304 characters; more goes through standard input.
const LARGEST_REQUEST = 4_000_000
const START_MS = 20_000
const TOAST_MS = 15_000
// After a compaction of its own that came to nothing, the next is tried when so much more of the window is in use.
const GROWTH_PERCENT = 5

function say($: $, toast: string, log: readonly string[]): void {
  $.ui.toast(toast, { timeoutMs: TOAST_MS })
  for (const line of log) $.ui.log(line)
}

async function asTool($: $, link: Link, agentId: string | undefined, tool: string, input: object): Promise<string> {
  try {
    const marker = await markerIn($, agentId, (input as { id?: string }).id)
    const answer = await ask($, link, 'tool', await request($, link, agentId, { tool, input, marker }))
    return String((answer as { text: string }).text)
  } catch (error) {
    return `[jev-engine: cannot be asked now: ${reasonOf(error)}]`
  }
}

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

async function request($: $, link: Link, agentId: string | undefined, rest: object): Promise<object> {
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
async function markerIn($: $, agentId: string | undefined, wanted = ''): Promise<string | undefined> {
  const rows = agentId ? await $.session.messages({ agentId }) : await $.session.messages()
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
function ask($: $, link: Link, route: string, given: object): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const seconds = link.timeoutMs / 1_000
    const timer = $.clock.after(link.timeoutMs, () => reject(new Error(`no answer within ${seconds} s`)))
    talk($, link, route, JSON.stringify(given)).then(resolve, reject).finally(() => timer.cancel())
  })
}

export const register: Register = (on, options) => {
  const link = linkOf(options)
  const atPercent = number(options, 'compactAtPercent', 60)
  let isCompacting = false
  let isOfUse = false
  let quietAt: number | undefined

  on('session.compact', async ($, e, next) => {
    // What is computed ahead may never be used: decisions are made when they count.
    if (e.trigger === 'precompute') return { skip: 'jev-engine decides when it counts' }
    const isOwn = e.trigger === 'plugin'
    let given: object | undefined
    try {
      const { context } = await $.session.usage()
      given = await request($, link, e.agentId, {
        trigger: e.trigger,
        instructions: e.instructions,
        window_tokens: context.window,
        used_tokens: e.agentId ? undefined : context.tokens,
      })
      const answer = (await ask($, link, 'compact', { ...given, messages: slim(e.messages) })) as Answer
      const messages = answer.steps ? build(e.messages, answer) : undefined
      if (isOwn && answer.act === 'summarise') throw new Error(answer.reason)
      if (isOwn && answer.act === 'replace' && !messages) throw new Error('the engine sent no steps')
      // Nobody asked for it: that nothing may go now is no news.
      const isQuiet = isOwn && answer.act === 'skip' && answer.stats?.outcome !== 'failed'
      if (isQuiet) $.ui.log(answer.toast, { to: 'debug' })
      else say($, answer.toast, answer.log)
      if (answer.act === 'skip') return { skip: answer.reason }
      if (messages) await ask($, link, 'applied', given).catch(() => undefined)
      isOfUse = true
      if (answer.act === 'replace' && messages) return { messages }
      return next(messages ? { ...e, messages } : e)
    } catch (error) {
      const line = `left ${isOwn ? 'as it is' : 'to the built-in summary'}: ${reasonOf(error)}`
      say($, line, [line])
      if (given) ask($, link, 'applied', { ...given, reason: reasonOf(error) }).catch(() => undefined)
      return isOwn ? { skip: line } : next(e)
    }
  })

  on('turn.complete', async ($, e, next) => {
    const done = await next(e)
    if (atPercent <= 0 || isCompacting || e.agentId) return done
    let percent = 0
    try {
      percent = (await $.session.usage()).context.percent ?? 0
      // What is in use now, where it has become less: growth counts from there.
      if (quietAt !== undefined) quietAt = percent < atPercent ? undefined : Math.min(quietAt, percent)
      if (percent < atPercent || (quietAt !== undefined && percent < quietAt + GROWTH_PERCENT)) return done
      isCompacting = true
      isOfUse = false
      await $.session.compact()
      quietAt = isOfUse ? undefined : percent
    } catch (error) {
      // A headless session compacts at its own threshold only; anything else may pass.
      quietAt = percent
      $.ui.log(`no compaction by itself now: ${reasonOf(error)}`, { to: 'debug' })
    } finally {
      isCompacting = false
    }
    return done
  })

  on('session.start', async ($, e, next) => {
    quietAt = undefined
    const expand = $.tool.register({
      name: 'expand',
      description:
        'Read again, byte for byte, a tool result that was left out of this conversation to save room. ' +
        'Its place says [jev-engine: … intact as jx-…]; give that id. Long results come in pages.',
      inputSchema: {
        type: 'object',
        properties: {
          id: { type: 'string', description: 'The id in the marker, such as jx-0123456789abcdef.' },
          offset: { type: 'integer', minimum: 0, description: 'Character to begin at; 0 is the start.' },
          limit: { type: 'integer', minimum: 1, maximum: 16_000, description: 'Characters of this page.' },
        },
        required: ['id'],
      },
      isDeferred: false,
    })
    const search = $.tool.register({
      name: 'search',
      description:
        'Search the tool results that were left out of this conversation to save room. ' +
        'Answers with the best passages and the id of each original, which can be read whole by its id.',
      inputSchema: {
        type: 'object',
        properties: { query: { type: 'string', description: 'Names, paths, words of the text.' } },
        required: ['query'],
      },
      isDeferred: false,
    })
    await Promise.all([expand, search])
    await $.command.register({
      name: 'jev',
      description: 'jev-engine: how this session stands; what is out; what must stay.',
      argumentHint: '[status | out WORDS | pin PATTERN]',
    })
    return next(e)
  })

  on('tool.call', { tool: EXPAND }, async ($, e) => ({ result: await asTool($, link, e.agentId, 'expand', e) }))
  on('tool.call', { tool: SEARCH }, async ($, e) => ({ result: await asTool($, link, e.agentId, 'search', e) }))

  on('command.run', { command: 'jev' }, async ($, e) => {
    const [verb = '', ...words] = e.args.trim().split(/\s+/)
    const rest = words.join(' ')
    if (verb === 'pin') {
      return {
        text: rest
          ? `Pinned: calls with a tool, path or id like ${rest} stay as they are in this session.`
          : 'Say what must stay: /jev pin docs/spec/*, /jev pin deploy_* or /jev pin t12.',
        isTextDisplayOnly: true,
      }
    }
    try {
      const marker = await markerIn($, undefined)
      const given = await request($, link, undefined, { query: verb === 'out' ? rest : '', marker })
      const answer = await ask($, link, 'status', given)
      return { text: String((answer as { text: string }).text), isTextDisplayOnly: true }
    } catch (error) {
      return { text: `jev-engine cannot be asked: ${reasonOf(error)}`, isTextDisplayOnly: true }
    }
  })
}
